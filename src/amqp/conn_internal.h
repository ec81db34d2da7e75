/*
 * conn_internal.h
 *		What the files of this folder share about a connection.
 *
 * May depend on: broker.h, rabbit.h, guard.h, window.h, events.h.
 */
#ifndef ACEMQ_CONN_INTERNAL_H
#define ACEMQ_CONN_INTERNAL_H

#include "broker.h"
#include "events.h"
#include "guard.h"
#include "rabbit.h"
#include "window.h"

/* The server's own macro names a dialect that clang does not know when gcc built the server. */
#define CHECKED_FORMAT(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))

/* A message that the broker gives back arrives in several frames; this is where we are in it. */
typedef enum ReturnStep
{
	RETURN_NONE,
	RETURN_WANTS_HEADER,
	RETURN_WANTS_BODY
} ReturnStep;

typedef struct ReturnInProgress
{
	ReturnStep step;
	int code;
	char text[ACEMQ_MAX_SHORTSTR + 1];
	uint64 route; /* as conn_route() makes it */
	uint64 body_left;
} ReturnInProgress;

/* So does one that it delivers. */
typedef enum DeliveryStep
{
	DELIVERY_NONE,
	DELIVERY_WANTS_HEADER,
	DELIVERY_WANTS_BODY
} DeliveryStep;

/*
 * A delivery tag as others see it names the opening of the channel too, so that
 * it means nothing on a later one.
 */
#define DELIVERY_TAG_BITS             48
#define DELIVERY_TAG_MAX              ((UINT64CONST(1) << DELIVERY_TAG_BITS) - 1)
#define DELIVERY_TAG(opening, number) (((uint64) (opening) << DELIVERY_TAG_BITS) | (number))
#define DELIVERY_TAG_OPENING(tag)     ((uint16) ((tag) >> DELIVERY_TAG_BITS))
#define DELIVERY_TAG_NUMBER(tag)      ((tag) &DELIVERY_TAG_MAX)

/* A channel that has consumed, and the delivery that is just arriving on it. */
typedef struct Consumption
{
	bool started; /* on this opening of the channel; deliveries may come */
	Size max_body;
	Size budget;
	Size held; /* memory of the deliveries handed out and not freed, also from before the channel was reopened */
	DeliveryStep step;
	BrokerDelivery *delivery;
	uint64 body_left;
} Consumption;

typedef struct BrokerChannel
{
	bool open;
	bool wanted;    /* to be opened as soon as the broker listens again */
	uint16 opening; /* which of the process's openings of a channel this is: see DELIVERY_TAG */
	Consumption consuming;
	Window window;
	WindowEntry *entries; /* memory of the window; kept when the channel closes */
	ReturnInProgress returning;
} BrokerChannel;

/* A request whose answer has not been fetched. */
typedef struct Question
{
	int channel; /* 0: there is none */
	amqp_method_number_t answer;
	TimestampTz deadline;
	bool answered; /* what follows is valid */
	BrokerRequest result;
	BrokerDenial denial;
	uint32 consumers; /* of a queue */
	uint32 messages;
} Question;

struct BrokerConn
{
	MemoryContext context; /* everything below, and this */
	MemoryContextCallback on_delete;
	MemoryContext scratch; /* of one publish */
	amqp_connection_state_t rabbit;
	bool fd_counted; /* AcquireExternalFD() was called */

	int io_timeout_ms;
	char server_text[128];

	bool hanging_up; /* sending failed; only what the broker said before that is still read */
	bool unreadable; /* what came was no frame: asking the library for another one would crash it */
	bool lost;
	int lost_code; /* reply code of the broker's connection.close, or 0 */
	char lost_reason[ACEMQ_ERROR_TEXT];
	bool blocked;
	char blocked_reason[ACEMQ_MAX_SHORTSTR + 1];
	bool tls;
	bool corked;
	bool mid_message;     /* some but not all of a message has been sent */
	Size sent_since_poll; /* bytes of messages since the socket was last found to take more */
	uint64 bytes_sent;    /* of messages, ever */
	uint8 *buffer;        /* SHORT_MESSAGE_MAX bytes, for the frames of a short message */

	EventQueue events;
	Question question;
	BrokerChannel channels[BROKER_MAX_CHANNEL + 1];
};

/* ---- conn.c ---- */

/* Mark the connection as lost, with the reason, and queue the event; only the first call counts. */
extern void conn_lost(BrokerConn *conn, const char *format, ...) CHECKED_FORMAT(2, 3);

/* The same by its connection.close, which is answered. */
extern void conn_closed_by_broker(BrokerConn *conn, const amqp_connection_close_t *method);

/*
 * After a guarded call: false, and the connection is lost, if it failed or the
 * guard fired.  `what` completes "could not ...".
 */
extern bool conn_check(BrokerConn *conn, int status, GuardOutcome outcome, const char *what);

/* The library's own state is sound, whatever has become of the socket. */
extern bool conn_is_socket_failure(int status);

/* The same as conn_check() after a call that sent: if the broker has said why it hung up, that is the reason. */
extern bool conn_check_sent(BrokerConn *conn, int status, GuardOutcome outcome, const char *what);

/* The same words without a connection to mark. */
extern void conn_describe_failure(char *text, Size size, int status, GuardOutcome outcome, const char *what,
                                  int timeout_ms);

/* Send one frame under the guard, then serve interrupts.  False: lost. */
extern bool conn_send_frame(BrokerConn *conn, const amqp_frame_t *frame, const char *what);
extern bool conn_send_method(BrokerConn *conn, int channel, amqp_method_number_t id, void *method, const char *what);

/* NULL for a number that is not ours. */
extern BrokerChannel *conn_channel(BrokerConn *conn, int channel);

/* Fingerprint of a destination, for the window. */
extern uint64 conn_route(const void *exchange, Size exchange_len, const void *routing_key, Size routing_key_len);

/* False, and lost, if something has been sent by half, or if it was lost before: nothing may follow on this socket. */
extern bool conn_may_send(BrokerConn *conn);

/* ---- rpc.c ---- */

typedef struct Rpc
{
	amqp_method_number_t request;
	void *method;
	amqp_method_number_t answer;
	const char *what; /* completes "could not ..." */
} Rpc;

/*
 * Ask and wait for the answer, under the guard.  BROKER_DENIED: the broker
 * closed the channel instead, which has been answered and noted, and *denial
 * says why.  Frames that came meanwhile lie inside the library, where no socket
 * event would announce them: pump_frames() has to follow.
 */
extern BrokerRequest rpc_ask(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial);

/* The same on an open channel of a connection that is not blocked, pump_frames() included. */
extern BrokerRequest rpc_request(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial);

/*
 * Ask, and be told BROKER_PENDING until the pump has found the answer.  Of it
 * only what Question keeps is left.
 */
extern BrokerRequest rpc_poll(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial);

/* For the pump: is it, or a channel.close, the answer that is waited for? */
extern void rpc_take_answer(BrokerConn *conn, int channel, const amqp_method_t *method);

/* Too long a name and the like: *denial without a code. */
extern BrokerRequest rpc_refuse(BrokerDenial *denial, const char *problem);

extern amqp_bytes_t rpc_bytes(const char *text);

/* ---- channel.c ---- */

extern void channel_open_wanted(BrokerConn *conn);

/*
 * The broker has closed it: answer, and mark it.  With `announce`, or if
 * publishes were in flight, an event tells of it.
 */
extern void channel_closed_by_broker(BrokerConn *conn, int channel, const amqp_channel_close_t *method, bool announce);

/* ---- deliver.c: a message that the broker delivers, from its frames ---- */

extern void delivery_begin(BrokerConn *conn, int channel, const amqp_basic_deliver_t *method);
extern void delivery_header(BrokerConn *conn, int channel, const amqp_frame_t *frame);
extern void delivery_body(BrokerConn *conn, int channel, const amqp_frame_t *frame);

/* The channel is gone: what has arrived of it by half goes too. */
extern void delivery_drop(BrokerConn *conn, int channel);

/* The library could not read a frame and the connection is about to be lost for it. */
extern void delivery_unreadable(BrokerConn *conn);

/* ---- consume.c ---- */

extern void consumer_cancelled(BrokerConn *conn, int channel, const amqp_basic_cancel_t *method);

/* ---- pump.c ---- */

/* Read and handle every frame that is there. */
extern void pump_frames(BrokerConn *conn);

/* ---- dial.c, tls.c, login.c: the steps of broker_connect(); false with *error filled ---- */

extern bool broker_dial_tcp(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options,
                            BrokerError *error);
extern bool broker_dial_tls(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options,
                            BrokerError *error);
extern bool broker_login(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options,
                         BrokerError *error);

/* The process's resolver gives up early: getaddrinfo() is the one call without a deadline. */
extern void broker_bound_resolver(void);

/* Fill *error; returns false, so that a step can end with it. */
extern bool broker_fail(BrokerError *error, BrokerFailure kind, const char *format, ...) CHECKED_FORMAT(3, 4);

/* The reason of the last failed OpenSSL call, or "". */
extern const char *broker_tls_reason(void);

#endif /* ACEMQ_CONN_INTERNAL_H */
