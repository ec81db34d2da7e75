/*
 * conn.c
 *		A connection to the broker: life, loss, and what can be asked of it.
 *
 * The handle of the client library and its socket belong to a memory context:
 * whatever path deletes the context closes the socket.
 *
 * May depend on: conn_internal.h, message.h, stack.h, text.h.
 */
#include "conn_internal.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "message.h"
#include "miscadmin.h"
#include "stack.h"
#include "storage/fd.h"
#include "text.h"
#include "utils/memutils.h"

/* How long a goodbye may take. */
#define GOODBYE_MS 1000

void
broker_process_init(void)
{
	guard_init();
	stack_prepare();
	rabbit_leave_openssl_alone();
}

void
broker_kick(void)
{
	guard_kick();
}

bool
broker_fail(BrokerError *error, BrokerFailure kind, const char *format, ...)
{
	char text[ACEMQ_ERROR_TEXT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	error->kind = kind;
	text_clean(error->text, sizeof(error->text), text, strlen(text));
	return false;
}

/* ---- life ---- */

static void
release_handle(void *arg)
{
	BrokerConn *conn = arg;

	if (conn->rabbit != NULL)
		(void) amqp_destroy_connection(conn->rabbit);
	conn->rabbit = NULL;
	if (conn->fd_counted)
		ReleaseExternalFD();
	conn->fd_counted = false;
}

static BrokerConn *
make_conn(MemoryContext parent, const BrokerOptions *options)
{
	MemoryContext context = AllocSetContextCreate(parent, "acemq broker connection", ALLOCSET_DEFAULT_SIZES);
	BrokerConn *conn = MemoryContextAllocZero(context, sizeof(BrokerConn));

	conn->context = context;
	conn->io_timeout_ms = options->io_timeout_ms;
	conn->on_delete.func = release_handle;
	conn->on_delete.arg = conn;
	MemoryContextRegisterResetCallback(context, &conn->on_delete);
	conn->buffer = MemoryContextAlloc(context, SHORT_MESSAGE_MAX);
	conn->scratch = AllocSetContextCreate(context, "acemq broker publish", ALLOCSET_DEFAULT_SIZES);
	events_init(&conn->events, context);
	return conn;
}

static bool
establish(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	if (!AcquireExternalFD())
		return broker_fail(error, BROKER_UNREACHABLE, "this process may not open another file: %s", strerror(errno));
	conn->fd_counted = true;

	conn->rabbit = amqp_new_connection();
	if (conn->rabbit == NULL)
		return broker_fail(error, BROKER_UNREACHABLE, "out of memory");

	broker_bound_resolver();
	conn->tls = endpoint->tls;
	if (!(conn->tls ? broker_dial_tls : broker_dial_tcp)(conn, endpoint, options, error))
		return false;
	CHECK_FOR_INTERRUPTS();
	return broker_login(conn, endpoint, options, error);
}

BrokerConn *
broker_connect(MemoryContext parent, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	BrokerConn *conn = make_conn(parent, options);
	MemoryContext caller = MemoryContextSwitchTo(conn->context);
	bool ok = establish(conn, endpoint, options, error);

	MemoryContextSwitchTo(caller);
	if (!ok)
	{
		MemoryContextDelete(conn->context);
		CHECK_FOR_INTERRUPTS();
		return NULL;
	}
	CHECK_FOR_INTERRUPTS();
	return conn;
}

void
broker_disconnect(BrokerConn *conn, bool politely)
{
	/* A broker that has blocked us does not read, so it would not hear the goodbye either. */
	if (politely && !conn->lost && !conn->blocked && !conn->mid_message)
	{
		struct timeval timeout = {.tv_sec = GOODBYE_MS / 1000};

		(void) amqp_set_rpc_timeout(conn->rabbit, &timeout);
		guard_begin(broker_socket(conn), GOODBYE_MS);
		(void) amqp_connection_close(conn->rabbit, AMQP_REPLY_SUCCESS);
		(void) guard_end();
	}
	MemoryContextDelete(conn->context);
	CHECK_FOR_INTERRUPTS();
}

/* ---- loss ---- */

void
conn_lost(BrokerConn *conn, const char *format, ...)
{
	char text[ACEMQ_ERROR_TEXT];
	va_list args;

	if (conn->lost)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_clean(conn->lost_reason, sizeof(conn->lost_reason), text, strlen(text));
	conn->lost = true;
	for (int i = 0; i <= BROKER_MAX_CHANNEL; i++)
		conn->channels[i].open = conn->channels[i].wanted = false;
	events_push(&conn->events, BROKER_EVENT_LOST, 0, conn->lost_reason)->code = conn->lost_code;
}

/* What the broker said counts, not whether it still hears the answer. */
void
conn_closed_by_broker(BrokerConn *conn, const amqp_connection_close_t *method)
{
	amqp_connection_close_ok_t answer = {0};
	char words[ACEMQ_MAX_SHORTSTR + 1];

	text_clean(words, sizeof(words), method->reply_text.bytes, method->reply_text.len);
	conn->lost_code = method->reply_code;
	conn_lost(conn, "the broker closed the connection: %d %s", conn->lost_code, words);

	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	(void) amqp_send_method(conn->rabbit, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &answer);
	(void) guard_end();
}

void
conn_describe_failure(char *text, Size size, int status, GuardOutcome outcome, const char *what, int timeout_ms)
{
	const char *reason = amqp_error_string2(status);

	/* These two say only where to look. */
	if (status == AMQP_STATUS_SOCKET_ERROR && errno != 0)
		reason = strerror(errno);
	else if (status == AMQP_STATUS_SSL_ERROR && broker_tls_reason()[0] != '\0')
		reason = broker_tls_reason();

	if (outcome == GUARD_KICKED)
		snprintf(text, size, "could not %s: the process is being terminated", what);
	else if (outcome == GUARD_TIMED_OUT || status == AMQP_STATUS_TIMEOUT)
		snprintf(text, size, "could not %s: no progress within %d ms", what, timeout_ms);
	else
		snprintf(text, size, "could not %s: %s", what, reason);
}

bool
conn_check(BrokerConn *conn, int status, GuardOutcome outcome, const char *what)
{
	char text[ACEMQ_ERROR_TEXT];

	if (status >= 0 && outcome == GUARD_QUIET)
		return true;
	conn_describe_failure(text, sizeof(text), status, outcome, what, conn->io_timeout_ms);
	conn_lost(conn, "%s", text);
	return false;
}

/* ---- sending ---- */

bool
conn_is_socket_failure(int status)
{
	return status == AMQP_STATUS_SOCKET_ERROR || status == AMQP_STATUS_SSL_ERROR || status == AMQP_STATUS_TCP_ERROR ||
	       status == AMQP_STATUS_CONNECTION_CLOSED || status == AMQP_STATUS_SOCKET_CLOSED;
}

/*
 * A broker that closes the connection stops listening soon after it has said
 * so.  Whoever is just sending then hears of a reset, while the broker's words
 * have arrived and not been read.
 */
bool
conn_check_sent(BrokerConn *conn, int status, GuardOutcome outcome, const char *what)
{
	char text[ACEMQ_ERROR_TEXT];

	if (status >= 0 || outcome != GUARD_QUIET || !conn_is_socket_failure(status))
		return conn_check(conn, status, outcome, what);
	conn_describe_failure(text, sizeof(text), status, outcome, what, conn->io_timeout_ms);
	if (!conn->hanging_up)
	{
		conn->hanging_up = true;
		pump_frames(conn);
	}
	conn_lost(conn, "%s", text);
	return false;
}

bool
conn_may_send(BrokerConn *conn)
{
	if (conn->mid_message)
		conn_lost(conn, "sending a message was interrupted");
	return !conn->lost;
}

bool
conn_send_frame(BrokerConn *conn, const amqp_frame_t *frame, const char *what)
{
	int status;
	bool ok;

	if (conn->lost || conn->hanging_up)
		return false;
	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	status = amqp_send_frame(conn->rabbit, frame);
	ok = conn_check_sent(conn, status, guard_end(), what);
	CHECK_FOR_INTERRUPTS();
	return ok;
}

bool
conn_send_method(BrokerConn *conn, int channel, amqp_method_number_t id, void *method, const char *what)
{
	amqp_frame_t frame;

	frame.frame_type = AMQP_FRAME_METHOD;
	frame.channel = (amqp_channel_t) channel;
	frame.payload.method.id = id;
	frame.payload.method.decoded = method;
	return conn_send_frame(conn, &frame, what);
}

static void
set_cork(BrokerConn *conn, int on)
{
	pgsocket socket = broker_socket(conn);

	/* Only a matter of speed: no harm if it fails. */
	if (socket != PGINVALID_SOCKET)
		(void) setsockopt(socket, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	conn->corked = on;
}

void
broker_cork(BrokerConn *conn)
{
	if (!conn->corked && !conn->lost)
		set_cork(conn, 1);
}

void
broker_uncork(BrokerConn *conn)
{
	if (conn->corked)
		set_cork(conn, 0);
}

/* ---- questions ---- */

pgsocket
broker_socket(BrokerConn *conn)
{
	/* The library closes it by itself when heartbeats stay away. */
	return amqp_get_sockfd(conn->rabbit);
}

uint64
broker_bytes_sent(BrokerConn *conn)
{
	return conn->bytes_sent;
}

uint64
broker_bytes_taken(BrokerConn *conn)
{
	int waiting;

	if (broker_socket(conn) == PGINVALID_SOCKET || ioctl(broker_socket(conn), SIOCOUTQ, &waiting) != 0)
		return conn->bytes_sent;
	return conn->bytes_sent - Min(conn->bytes_sent, (uint64) waiting);
}

bool
broker_is_lost(BrokerConn *conn)
{
	return conn->lost;
}

int
broker_lost_code(BrokerConn *conn)
{
	return conn->lost_code;
}

const char *
broker_lost_reason(BrokerConn *conn)
{
	return conn->lost_reason;
}

bool
broker_is_blocked(BrokerConn *conn)
{
	return conn->blocked;
}

const char *
broker_blocked_reason(BrokerConn *conn)
{
	return conn->blocked_reason;
}

const char *
broker_server_text(BrokerConn *conn)
{
	return conn->server_text;
}

bool
broker_next_event(BrokerConn *conn, BrokerEvent *event)
{
	return events_next(&conn->events, event);
}
