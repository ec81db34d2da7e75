/*
 * dial.c
 *		The TCP part of connecting.
 *
 * For a plain connection the socket is ours, so that waiting for it serves
 * interrupts; TLS has to leave it to the library (tls.c).
 *
 * May depend on: conn_internal.h.
 */
#include "conn_internal.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <resolv.h>
#include <sys/socket.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

/* A name with more addresses than these is a mistake; the rest is not tried. */
#define MAX_ADDRESSES 16

typedef struct Address
{
	int family;
	socklen_t len;
	struct sockaddr_storage storage;
} Address;

void
broker_bound_resolver(void)
{
	/*
	 * res_init() reads resolv.conf again, whose changes the resolver would not
	 * notice by itself once the values below differ from it.  They have to
	 * differ from what res_init() has found, too, or the resolver takes its
	 * own back at the next question: so ours of the last time go first.
	 */
	_res.retrans = 0;
	_res.retry = 0;
	if (res_init() == 0)
	{
		_res.retrans = 1;
		_res.retry = 1;
	}
}

/* Number of addresses, or 0 with *error filled. */
static int
resolve(const BrokerEndpoint *endpoint, Address *addresses, BrokerError *error)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	char port[16];
	int status;
	int count = 0;

	snprintf(port, sizeof(port), "%d", endpoint->port);
	status = getaddrinfo(endpoint->host, port, &hint, &list);
	if (status != 0)
	{
		(void) broker_fail(error, BROKER_UNREACHABLE, "could not resolve the host name of %s: %s",
		                   broker_endpoint_text(endpoint), gai_strerror(status));
		return 0;
	}

	/* Copied, because an interrupt served later could leave the list behind. */
	for (struct addrinfo *info = list; info != NULL && count < MAX_ADDRESSES; info = info->ai_next)
	{
		if (info->ai_addrlen > sizeof(struct sockaddr_storage))
			continue;
		addresses[count].family = info->ai_family;
		addresses[count].len = info->ai_addrlen;
		memcpy(&addresses[count].storage, info->ai_addr, info->ai_addrlen);
		count++;
	}
	freeaddrinfo(list);
	return count;
}

/* A non-blocking socket that the library's handle owns; -1 with errno set if there is none to be had. */
static pgsocket
make_socket(BrokerConn *conn, int family)
{
	int on = 1;
	pgsocket fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	amqp_socket_t *handle;

	if (fd == PGINVALID_SOCKET)
		return fd;

	/* Closes the socket of the address tried before. */
	handle = amqp_tcp_socket_new(conn->rabbit);
	if (handle == NULL)
	{
		close(fd);
		errno = ENOMEM;
		return PGINVALID_SOCKET;
	}
	amqp_tcp_socket_set_sockfd(handle, fd);
	(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	return fd;
}

/* Wait until the socket is connected or has failed; false if time ran out first. */
static bool
wait_connected(pgsocket fd, TimestampTz deadline)
{
	bool latch_was_set = false;
	int events = 0;

	while ((events & WL_SOCKET_CONNECTED) == 0)
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		if (left <= 0)
			break;
		events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_CONNECTED | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, fd,
		                           left, PG_WAIT_EXTENSION);
		if (events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			latch_was_set = true;
			CHECK_FOR_INTERRUPTS();
		}
	}

	/* The caller's main loop has yet to see what it was set for. */
	if (latch_was_set)
		SetLatch(MyLatch);
	return (events & WL_SOCKET_CONNECTED) != 0;
}

/* 0 or an errno. */
static int
connect_one(BrokerConn *conn, const Address *address, TimestampTz deadline)
{
	pgsocket fd = make_socket(conn, address->family);
	int problem = 0;
	socklen_t len = sizeof(problem);

	if (fd == PGINVALID_SOCKET)
		return errno;
	if (connect(fd, (const struct sockaddr *) &address->storage, address->len) == 0)
		return 0;
	if (errno != EINPROGRESS && errno != EINTR)
		return errno;
	if (!wait_connected(fd, deadline))
		return ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &len) != 0)
		return errno;
	return problem;
}

bool
broker_dial_tcp(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	Address *addresses = MemoryContextAlloc(conn->context, MAX_ADDRESSES * sizeof(Address));
	int count = resolve(endpoint, addresses, error);
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), options->connect_timeout_ms);
	int problem = 0;

	if (count == 0)
		return false;
	for (int i = 0; i < count; i++)
	{
		problem = connect_one(conn, &addresses[i], deadline);
		if (problem == 0)
		{
			pfree(addresses);
			return true;
		}
	}
	return broker_fail(error, BROKER_UNREACHABLE, "could not connect to %s: %s", broker_endpoint_text(endpoint),
	                   strerror(problem));
}
