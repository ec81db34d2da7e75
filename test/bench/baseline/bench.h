/*
 * bench.h
 *		What the baselines share: the clock, the options, a connection to the
 *		broker, a consumer in a thread, a connection to the database.
 *
 * May depend on: libpq, librabbitmq.
 */
#ifndef BENCH_H
#define BENCH_H

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_tcp_socket.h>
#endif

typedef struct Options
{
	int port; /* of the broker, on the loopback */
	const char *vhost;
	const char *user;
	const char *password; /* from the environment: BENCH_PASSWORD */
	const char *database; /* what libpq connects to */
	const char *exchange;
	const char *routing_key;
	const char *queue; /* consumed by a thread, if given */
	const char *origin;
	int count;
	int window;
	int body;   /* bytes */
	int burst;  /* messages, or rows of a transaction, at once */
	int gap_us; /* between two bursts */
	int timeout_s;
} Options;

extern Options options;

/* Report and exit(1). */
extern void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Seconds of the one clock of every figure: CLOCK_MONOTONIC. */
extern double now(void);
/* Seconds since 1970, for due times. */
extern double wall_clock(void);
extern void sleep_until(double when);

/* ---- broker.c ---- */

typedef struct Publisher
{
	amqp_connection_state_t connection;
	uint64_t published; /* tag of the last publish */
	uint64_t confirmed; /* how many are */
	uint64_t base;      /* every tag up to this one is settled */
	bool *settled;      /* by tag modulo the size */
	uint64_t size;
} Publisher;

extern amqp_connection_state_t broker_connect(void);
extern void publisher_open(Publisher *publisher);
/* A message as the outbox sends it: mandatory, persistent, with the same properties and headers. */
extern void publish(Publisher *publisher, const char *body, size_t length);
/* Take in the confirms that are there; first wait for one if `wait`. */
extern void take_confirms(Publisher *publisher, bool wait);
extern uint64_t in_flight(const Publisher *publisher);

/* ---- consumer.c ---- */

/* Called in the consumer's thread for every delivery. */
typedef void (*OnDelivery)(const char *body, size_t length, double when);

/* Consume options.queue without acknowledgements; returns when the broker has answered. */
extern void consumer_start(OnDelivery on_delivery);
extern uint64_t consumer_count(void);

/* ---- database.c ---- */

extern PGconn *database_connect(void);
extern void database_run(PGconn *connection, const char *sql);

/* ---- the programs ---- */

extern void run_publish(void);
extern void run_watch(void);
extern void run_publish_latency(void);
extern void run_outbox_latency(void);
extern void run_schedule(void);

#endif /* BENCH_H */
