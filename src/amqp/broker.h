/*
 * broker.h
 *		The broker client: everything the rest of the extension may know of
 *		RabbitMQ.  Connection, channels, publish with confirms, events.
 *
 * The client knows no row and no transaction; a caller gives each publish an
 * opaque token and gets it back with the outcome.  Only files of this folder
 * include librabbitmq.  No function here raises an ERROR on what the network
 * does: it reports it.  CHECK_FOR_INTERRUPTS is served between frames, so a
 * termination request may leave any of these functions by ereport(FATAL).
 *
 * Every call that can block runs under the guard (guard.h): one frame, one RPC
 * or one handshake step takes at most io_timeout (connect_timeout), after which
 * the socket is shut down and the connection is reported lost.
 *
 * May depend on: src/ (wire_fields.h, broker_url.h), librabbitmq.
 */
#ifndef ACEMQ_BROKER_H
#define ACEMQ_BROKER_H

#include "broker_url.h"
#include "wire_fields.h"

#include "datatype/timestamp.h"

typedef struct BrokerConn BrokerConn;

typedef struct BrokerOptions
{
	int io_timeout_ms;
	int connect_timeout_ms;
	int heartbeat_s;
	const char *tls_ca_file; /* NULL or empty: the system's trust store */
	const char *tls_cert_file;
	const char *tls_key_file;
	bool tls_verify_peer;
	bool tls_verify_host;
	const char *connection_name; /* client property connection_name, shown by the broker */
} BrokerOptions;

typedef enum BrokerFailure
{
	BROKER_UNREACHABLE,   /* name, TCP, TLS, handshake, timeout */
	BROKER_LOGIN_REFUSED, /* wrong credentials or vhost: back off long */
	BROKER_MISCONFIGURED  /* a TLS file that cannot be read, and the like */
} BrokerFailure;

typedef struct BrokerError
{
	BrokerFailure kind;
	char text[ACEMQ_ERROR_TEXT]; /* one line, valid UTF-8, never a password */
} BrokerError;

/* Call once per process, before the first connect and after signal handlers are installed. */
extern void broker_process_init(void);

/* From the SIGTERM handler, before die(): gets a blocked call out.  Async-signal-safe. */
extern void broker_kick(void);

/*
 * Connect and log in with capabilities (connection.blocked,
 * consumer_cancel_notify, publisher_confirms, basic.nack).  NULL on failure
 * with *error filled.  The connection owns a memory context under `parent`;
 * deleting that context closes the socket (no goodbye).
 */
extern BrokerConn *broker_connect(MemoryContext parent, const BrokerEndpoint *endpoint, const BrokerOptions *options,
                                  BrokerError *error);

/* Say goodbye if `politely` (at most one second), free everything. */
extern void broker_disconnect(BrokerConn *conn, bool politely);

extern pgsocket broker_socket(BrokerConn *conn);
extern bool broker_is_lost(BrokerConn *conn);
extern const char *broker_lost_reason(BrokerConn *conn); /* "" while it is not lost */
/* Reply code of the broker's connection.close; 0: it is not lost, or was without one. */
extern int broker_lost_code(BrokerConn *conn);
extern bool broker_is_blocked(BrokerConn *conn);
extern const char *broker_blocked_reason(BrokerConn *conn);
extern const char *broker_server_text(BrokerConn *conn); /* "RabbitMQ 3.10.8" */

/* Channel numbers in use: fixed, small, each one costs the library a page pool. */
#define BROKER_CHANNEL_MAIN  1 /* pipelined publishes */
#define BROKER_CHANNEL_PROBE 2 /* one at a time: suspects and retries; its death harms nobody else */
/* Of a connection that consumes: */
#define BROKER_CHANNEL_CONSUME  6
#define BROKER_CHANNEL_TOPOLOGY 7
#define BROKER_MAX_CHANNEL      7

/*
 * channel.open + confirm.select; also after the broker closed it.  False:
 * connection lost.  While the connection is blocked it is only noted: the
 * channel opens in the broker_pump() that hears of the end.  May queue events.
 */
extern bool broker_open_channel(BrokerConn *conn, int channel);
extern bool broker_channel_is_open(BrokerConn *conn, int channel);

typedef struct BrokerMessage
{
	/* all UTF-8, zero-terminated */
	const char *exchange;
	const char *routing_key;
	const char *message_id;
	const char *content_type; /* NULL: absent */
	const char *reply_to;     /* NULL: absent */
	const char *expiration;   /* NULL: absent; goes out as it is */
	int priority;             /* -1: absent */
	bool persistent;
	const WireTable *headers;
	const char *body;
	Size body_len;
} BrokerMessage;

typedef enum BrokerPublish
{
	BROKER_SENT,        /* in the window: exactly one outcome event with this token will follow */
	BROKER_WOULD_BLOCK, /* socket not writable, channel not open, or blocked: nothing was sent, try later */
	BROKER_REFUSED, /* this message cannot be sent (name too long, headers over a frame): nothing was sent, *error says why */
	BROKER_LOST /* connection is gone, maybe after the last byte; an outcome for this token may have been put among the events */
} BrokerPublish;

/*
 * Mandatory, always.  Incoming frames have to be pumped before a batch of
 * these.  A message of up to 64 kB goes out with one system call, so corking
 * matters for batches only.
 */
extern BrokerPublish broker_publish(BrokerConn *conn, int channel, const BrokerMessage *message, uint64 token,
                                    BrokerError *error);

/* Put around a batch of publishes: lets the kernel send full segments instead of a packet per frame. */
extern void broker_cork(BrokerConn *conn);
extern void broker_uncork(BrokerConn *conn);

/*
 * Bytes of messages sent on this connection so far, and how many of them the
 * other side has at least taken: the difference waits in our kernel, for a
 * while on a slow line.
 */
extern uint64 broker_bytes_sent(BrokerConn *conn);
extern uint64 broker_bytes_taken(BrokerConn *conn);

extern int broker_in_flight(BrokerConn *conn, int channel);
/* Time of the oldest unconfirmed publish of the channel, 0 if there is none. */
extern TimestampTz broker_oldest_in_flight(BrokerConn *conn, int channel);

typedef enum BrokerEventKind
{
	BROKER_EVENT_CONFIRMED, /* token: acked and not returned */
	BROKER_EVENT_NACKED,    /* token */
	BROKER_EVENT_RETURNED,  /* token, code, text: comes once, in place of the confirm that follows on the wire */
	BROKER_EVENT_UNSETTLED, /* token: was in flight on a channel that the broker closed; one per token, after CHANNEL_CLOSED */
	BROKER_EVENT_CHANNEL_CLOSED, /* channel, code, text; close-ok has been sent; window of the channel is empty after its UNSETTLED events */
	BROKER_EVENT_BLOCKED, /* text */
	BROKER_EVENT_UNBLOCKED,
	BROKER_EVENT_DELIVERY, /* channel, delivery: yours, see broker_delivery_free() */
	BROKER_EVENT_CONSUMER_CANCELLED, /* channel: the queue was deleted, or its node went; deliveries still unsettled may be settled */
	BROKER_EVENT_LOST /* code as broker_lost_code(), text; last event of a connection.  All tokens still out are unknown */
} BrokerEventKind;

typedef struct BrokerDelivery BrokerDelivery;

typedef struct BrokerEvent
{
	BrokerEventKind kind;
	int channel;
	uint64 token;
	TimestampTz sent_at; /* of the publish, for outcome events */
	int code;
	const char *text;         /* valid until the next broker_pump(); cleaned to valid UTF-8, at most ACEMQ_ERROR_TEXT */
	BrokerDelivery *delivery; /* NULL except in BROKER_EVENT_DELIVERY */
} BrokerEvent;

/*
 * Read every frame that is there without blocking, send heartbeats that are
 * due, queue events.  Has to be called at least every heartbeat / 2.
 */
extern void broker_pump(BrokerConn *conn);

/* Next queued event; false when there is none. */
extern bool broker_next_event(BrokerConn *conn, BrokerEvent *event);

/* ---- topology: requests that the broker answers when it comes to it ---- */

typedef enum BrokerRequest
{
	BROKER_DONE,
	BROKER_DENIED, /* the broker closed the channel: *error->text says why ("406 PRECONDITION_FAILED - ..."), *code its number */
	BROKER_REQUEST_BLOCKED, /* the connection is blocked or the channel is not open: not asked, try later */
	BROKER_REQUEST_LOST,    /* connection lost, also because no answer came in time */
	BROKER_PENDING          /* asked: the same call again, with the same arguments, after the next broker_pump() */
} BrokerRequest;

typedef struct BrokerDenial
{
	int code; /* reply code of the channel.close; 0: not asked, a name is too long or so; the channel is still open */
	char text[ACEMQ_ERROR_TEXT];
} BrokerDenial;

/*
 * Durable, neither exclusive nor auto-delete nor internal.  `arguments` may be
 * NULL.  Declaring what is there already with the same arguments changes
 * nothing; with others it is denied with 406.  A denial closes that channel and
 * nothing else (it is followed by no CHANNEL_CLOSED event unless publishes were
 * in flight on it); open it again.  Not on a channel that publishes or consumes.
 * Nobody waits: a queue that is busy, with thousands of messages that expire in
 * it or because it hangs, answers when it can.  One request at a time.
 */
extern BrokerRequest broker_declare_exchange(BrokerConn *conn, int channel, const char *name, const char *type,
                                             BrokerDenial *denial);
extern BrokerRequest broker_declare_queue(BrokerConn *conn, int channel, const char *name, const WireTable *arguments,
                                          BrokerDenial *denial);
extern BrokerRequest broker_bind_queue(BrokerConn *conn, int channel, const char *queue, const char *exchange,
                                       const char *routing_key, BrokerDenial *denial);
/* Passive declare: is it there (404 if not), and how many consumers and ready messages has it? */
extern BrokerRequest broker_inspect_queue(BrokerConn *conn, int channel, const char *name, uint32 *consumers,
                                          uint32 *messages, BrokerDenial *denial);

/* When the pending request, if there is one, is given up and the connection with it; 0: none. */
extern TimestampTz broker_request_deadline(BrokerConn *conn);

/* ---- consuming ---- */

/*
 * False where messages of others must not be received, because this version of
 * the library could exhaust the stack on one of them; *why says so ("" if true).
 */
extern bool broker_may_consume(const char **why);

typedef struct BrokerConsumer
{
	const char *queue;
	const char *tag;
	uint16 prefetch;
	Size max_body;    /* a longer body is not kept: BROKER_DELIVERY_TOO_LONG */
	Size body_budget; /* memory of deliveries not freed; one above it is OVER_BUDGET, unless it is the only one */
	bool exclusive;
} BrokerConsumer;

/*
 * basic.qos + basic.consume with manual acknowledgement.  One consumer a
 * channel, and nothing is published on it.  A denial closes the channel, as
 * above.  Of a consumer that was cancelled the queue may be consumed again on
 * the same channel.
 */
extern BrokerRequest broker_consume(BrokerConn *conn, int channel, const BrokerConsumer *consumer,
                                    BrokerDenial *denial);

typedef enum BrokerDeliveryState
{
	BROKER_DELIVERY_WHOLE,
	BROKER_DELIVERY_TOO_LONG,    /* body NULL; everything else is there */
	BROKER_DELIVERY_OVER_BUDGET, /* body NULL, headers empty: requeue it when there is room again */
	BROKER_DELIVERY_UNREADABLE   /* headers nested deeper than ACEMQ_MAX_HEADER_DEPTH; body NULL, headers empty */
} BrokerDeliveryState;

/* All memory is the delivery's own, in a context under the connection's: it ends with the connection at the latest. */
struct BrokerDelivery
{
	MemoryContext context;
	Size memory; /* its share of the budget */
	BrokerDeliveryState state;
	int channel;
	uint64 tag; /* for broker_ack() and broker_reject(); unlike any other of this process */
	bool redelivered;
	const char *exchange; /* it came through, zero-terminated like the others */
	const char *routing_key;
	const char *content_type; /* NULL: the property is absent */
	const char *message_id;   /* NULL: absent */
	const char *reply_to;     /* NULL: absent */
	int priority;             /* -1: absent */
	bool persistent;
	WireTable headers; /* as received, every kind; broker_publish() sends them as the same bytes */
	const char *body;  /* not terminated; not NULL if whole, even if it is empty */
	Size body_len;
};

/* Does not settle it. */
extern void broker_delivery_free(BrokerConn *conn, BrokerDelivery *delivery);

/* False: the connection is lost (the broker will deliver it again).  Does nothing on a channel that is not the one it came on any more. */
extern bool broker_ack(BrokerConn *conn, int channel, uint64 tag);
extern bool broker_reject(BrokerConn *conn, int channel, uint64 tag, bool requeue);

#endif /* ACEMQ_BROKER_H */
