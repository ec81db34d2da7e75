/*
 * events.h
 *		Queue of what the pump found, until the caller takes it.
 *
 * May depend on: broker.h.
 */
#ifndef ACEMQ_AMQP_EVENTS_H
#define ACEMQ_AMQP_EVENTS_H

#include "broker.h"

typedef struct EventQueue
{
	MemoryContext context; /* of the queue itself */
	MemoryContext texts;   /* what event->text points to */
	BrokerEvent *items;    /* ring */
	int capacity;
	int head;
	int count;
} EventQueue;

extern void events_init(EventQueue *queue, MemoryContext parent);

/* Append an event, the text copied, and return it for the rest to be filled in; valid until the next call. */
extern BrokerEvent *events_push(EventQueue *queue, BrokerEventKind kind, int channel, const char *text);

extern bool events_next(EventQueue *queue, BrokerEvent *event);

/* Forget the texts of events already taken. */
extern void events_forget_texts(EventQueue *queue);

#endif /* ACEMQ_AMQP_EVENTS_H */
