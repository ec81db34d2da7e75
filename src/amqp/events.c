/*
 * events.c
 *		Queue of what the pump found, until the caller takes it.
 *
 * Its length is bounded by what can be in flight: nearly every event answers a
 * publish.
 *
 * May depend on: broker.h.
 */
#include "events.h"

#include "utils/memutils.h"

#define FIRST_CAPACITY 256

void
events_init(EventQueue *queue, MemoryContext parent)
{
	memset(queue, 0, sizeof(*queue));
	queue->context = parent;
	queue->texts = AllocSetContextCreate(parent, "acemq broker event texts", ALLOCSET_SMALL_SIZES);
	queue->capacity = FIRST_CAPACITY;
	queue->items = MemoryContextAlloc(parent, FIRST_CAPACITY * sizeof(BrokerEvent));
}

static void
grow(EventQueue *queue)
{
	int capacity = queue->capacity * 2;
	BrokerEvent *items = MemoryContextAlloc(queue->context, capacity * sizeof(BrokerEvent));

	for (int i = 0; i < queue->count; i++)
		items[i] = queue->items[(queue->head + i) % queue->capacity];
	pfree(queue->items);
	queue->items = items;
	queue->capacity = capacity;
	queue->head = 0;
}

BrokerEvent *
events_push(EventQueue *queue, BrokerEventKind kind, int channel, const char *text)
{
	BrokerEvent *event;

	if (queue->count == queue->capacity)
		grow(queue);
	event = &queue->items[(queue->head + queue->count) % queue->capacity];
	memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->channel = channel;
	event->text = text != NULL && text[0] != '\0' ? MemoryContextStrdup(queue->texts, text) : "";
	queue->count++;
	return event;
}

bool
events_next(EventQueue *queue, BrokerEvent *event)
{
	if (queue->count == 0)
		return false;
	*event = queue->items[queue->head];
	queue->head = (queue->head + 1) % queue->capacity;
	queue->count--;
	return true;
}

void
events_forget_texts(EventQueue *queue)
{
	/* Events still waiting keep theirs. */
	if (queue->count == 0)
		MemoryContextReset(queue->texts);
}
