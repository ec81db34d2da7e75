/*
 * contexts.c (stand-in)
 *		Memory contexts over malloc(): what is in one goes with it, and what is
 *		used afterwards, or left when the last is gone, shows.
 */
#include "postgres.h"

#include "utils/memutils.h"

typedef struct Chunk
{
	struct Chunk *next;
	struct Chunk *previous;
	MemoryContext context;
	Size size;
} Chunk;

struct MemoryContextData
{
	MemoryContext parent;
	MemoryContext children;
	MemoryContext next; /* child of the same parent */
	Chunk *chunks;
	MemoryContextCallback *callbacks;
};

static MemoryContext current = NULL;
static int fail_after = -1;

void
standin_fail_after(int count)
{
	fail_after = count;
}

MemoryContext
AllocSetContextCreate(MemoryContext parent, const char *name, int sizes)
{
	MemoryContext context = calloc(1, sizeof(*context));

	assert(context != NULL);
	context->parent = parent;
	if (parent != NULL)
	{
		context->next = parent->children;
		parent->children = context;
	}
	return context;
}

void
MemoryContextRegisterResetCallback(MemoryContext context, MemoryContextCallback *callback)
{
	callback->next = context->callbacks;
	context->callbacks = callback;
}

void
MemoryContextReset(MemoryContext context)
{
	while (context->callbacks != NULL)
	{
		MemoryContextCallback *callback = context->callbacks;

		context->callbacks = callback->next;
		callback->func(callback->arg);
	}
	while (context->children != NULL)
		MemoryContextDelete(context->children);
	while (context->chunks != NULL)
		pfree(context->chunks + 1);
}

void
MemoryContextDelete(MemoryContext context)
{
	MemoryContextReset(context);
	if (context->parent != NULL)
	{
		MemoryContext *link = &context->parent->children;

		while (*link != context)
			link = &(*link)->next;
		*link = context->next;
	}
	assert(context != current);
	free(context);
}

MemoryContext
MemoryContextSwitchTo(MemoryContext context)
{
	MemoryContext before = current;

	current = context;
	return before;
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	Chunk *chunk = malloc(sizeof(Chunk) + size);

	assert(chunk != NULL && context != NULL);
	*chunk = (Chunk){.next = context->chunks, .context = context, .size = size};
	if (chunk->next != NULL)
		chunk->next->previous = chunk;
	context->chunks = chunk;
	return chunk + 1;
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return memset(MemoryContextAlloc(context, size), 0, size);
}

char *
MemoryContextStrdup(MemoryContext context, const char *text)
{
	return strcpy(MemoryContextAlloc(context, strlen(text) + 1), text);
}

char *
pnstrdup(const char *text, Size len)
{
	Size copied = strnlen(text, len);
	char *copy = palloc(copied + 1);

	memcpy(copy, text, copied);
	copy[copied] = '\0';
	return copy;
}

char *
pstrdup(const char *text)
{
	return MemoryContextStrdup(current, text);
}

void *
palloc(Size size)
{
	return MemoryContextAlloc(current, size);
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
palloc_extended(Size size, int flags)
{
	if ((flags & MCXT_ALLOC_NO_OOM) != 0 && fail_after >= 0 && fail_after-- == 0)
		return NULL;
	return (flags & MCXT_ALLOC_ZERO) != 0 ? palloc0(size) : palloc(size);
}

void *
repalloc(void *pointer, Size size)
{
	Chunk *old = (Chunk *) pointer - 1;
	void *moved = MemoryContextAlloc(old->context, size);

	memcpy(moved, pointer, Min(size, old->size));
	pfree(pointer);
	return moved;
}

void
pfree(void *pointer)
{
	Chunk *chunk = (Chunk *) pointer - 1;

	if (chunk->previous != NULL)
		chunk->previous->next = chunk->next;
	else
		chunk->context->chunks = chunk->next;
	if (chunk->next != NULL)
		chunk->next->previous = chunk->previous;
	free(chunk);
}
