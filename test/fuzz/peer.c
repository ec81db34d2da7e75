/*
 * peer.c
 *		A connection whose other end is the fuzzer.
 */
#include "peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "amqp/stack.h"

const char *peer_greeting = NULL;
Size peer_greeting_len = 0;

static int peer = -1;

static uint8 encoded[65536];

/* ---- what connecting takes besides the files under test ---- */

bool
broker_dial_tcp(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	amqp_socket_t *socket = amqp_tcp_socket_new(conn->rabbit);
	int ends[2];

	if (peer >= 0)
		close(peer);
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
	amqp_tcp_socket_set_sockfd(socket, ends[0]);
	peer = ends[1];
	if (peer_greeting != NULL)
	{
		peer_say(peer_greeting, peer_greeting_len);
		peer_end();
	}
	return true;
}

bool
broker_dial_tls(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	abort();
}

void
broker_bound_resolver(void)
{
}

const char *
broker_tls_reason(void)
{
	return "";
}

void
stack_prepare(void)
{
}

void
guard_init(void)
{
}

void
guard_kick(void)
{
}

void
guard_begin(pgsocket socket, int timeout_ms)
{
}

GuardOutcome
guard_end(void)
{
	return GUARD_QUIET;
}

BrokerConn *
peer_connect(BrokerError *error)
{
	BrokerEndpoint endpoint = {.host = "h", .port = 5672, .user = "u", .password = "p", .vhost = "/"};
	BrokerOptions options = {.io_timeout_ms = 1000, .connect_timeout_ms = 1000, .heartbeat_s = 10};
	MemoryContext current = MemoryContextSwitchTo(NULL);

	MemoryContextSwitchTo(current);
	return broker_connect(current, &endpoint, &options, error);
}

/* ---- saying something ---- */

void
peer_say(const void *data, Size len)
{
	char heard[65536];

	while (recv(peer, heard, sizeof(heard), MSG_DONTWAIT) > 0)
		continue;
	/* What does not fit any more is not said: nobody is reading. */
	(void) !send(peer, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void
peer_end(void)
{
	(void) shutdown(peer, SHUT_WR);
}

static void
put(uint8 *target, uint64 value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		target[i] = (uint8) (value >> (8 * (bytes - 1 - i)));
}

void
peer_frame(int type, int channel, const void *payload, Size len)
{
	uint8 *frame = palloc(len + RABBIT_FRAME_OVERHEAD);

	frame[0] = (uint8) type;
	put(frame + 1, channel, 2);
	put(frame + 3, len, 4);
	memcpy(frame + 7, payload, len);
	frame[len + 7] = AMQP_FRAME_END;
	peer_say(frame, len + RABBIT_FRAME_OVERHEAD);
	pfree(frame);
}

void
peer_method(int channel, amqp_method_number_t id, void *method)
{
	int len = amqp_encode_method(id, method, (amqp_bytes_t){sizeof(encoded) - 4, encoded + 4});

	MUST(len >= 0);
	put(encoded, id, 4);
	peer_frame(AMQP_FRAME_METHOD, channel, encoded, len + 4);
}

void
peer_header(int channel, uint64 body_size, const amqp_basic_properties_t *properties)
{
	int len = amqp_encode_properties(
	    AMQP_BASIC_CLASS, (void *) properties,
	    (amqp_bytes_t){sizeof(encoded) - RABBIT_CONTENT_HEADER, encoded + RABBIT_CONTENT_HEADER});

	if (len < 0)
		return;
	put(encoded, AMQP_BASIC_CLASS, 2);
	put(encoded + 2, 0, 2);
	put(encoded + 4, body_size, 8);
	peer_frame(AMQP_FRAME_HEADER, channel, encoded, len + RABBIT_CONTENT_HEADER);
}
