/*
 * rabbit.h
 *		The only place that includes librabbitmq.
 *
 * Three of its functions are never called anywhere: amqp_uninitialize_ssl_library
 * (takes OpenSSL away from the server too), amqp_release_buffers (aborts the
 * process while a frame is incomplete) and amqp_consume_message with its
 * relatives (wait without limit).
 *
 * May depend on: librabbitmq 0.11 to 0.18.
 */
#ifndef ACEMQ_RABBIT_H
#define ACEMQ_RABBIT_H

/* "rabbitmq-c/" came with 0.12; the old names still work there but make the compiler complain. */
#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/ssl_socket.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#endif

/*
 * OpenSSL is the server's as well and initialises itself; 0.11 would install
 * global callbacks.  Newer ones leave it alone and call the switch deprecated.
 */
#if AMQP_VERSION < AMQP_VERSION_CODE(0, 12, 0, 0)
#define rabbit_leave_openssl_alone() amqp_set_initialize_ssl_library(0)
#else
#define rabbit_leave_openssl_alone() ((void) 0)
#endif

/*
 * The frame size we offer.  Larger frames cost memory per channel and allow
 * deeper nesting of headers (stack.h), smaller ones cost system calls.
 */
#define RABBIT_FRAME_MAX 131072

/* Bytes of a frame around its payload: type, channel, length, end mark. */
#define RABBIT_FRAME_OVERHEAD 8

/* Bytes of a content header before the property flags: class, weight, body size. */
#define RABBIT_CONTENT_HEADER 12

#endif /* ACEMQ_RABBIT_H */
