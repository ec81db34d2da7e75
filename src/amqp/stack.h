/*
 * stack.h
 *		Room on the stack for what the client library does with it.
 *
 * rabbitmq-c before 0.14 reads nested headers by recursion without a limit, and
 * one frame can hold 26,000 levels.  A process that runs out of stack there
 * takes the whole server down with it.
 *
 * May depend on: broker.h, rabbit.h.
 */
#ifndef ACEMQ_AMQP_STACK_H
#define ACEMQ_AMQP_STACK_H

#include "broker.h"

/*
 * Let the stack of this process grow as far as that can need, if it may.  The
 * kernel asks for the limit when the stack grows, so this works in a running
 * process.  broker_may_consume() says how it went.
 */
extern void stack_prepare(void);

#endif /* ACEMQ_AMQP_STACK_H */
