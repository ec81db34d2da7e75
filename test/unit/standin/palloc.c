/*
 * palloc.c (stand-in)
 *		malloc() under the server's names, so that leaks and overruns show.
 */
#include "postgres.h"

static int fail_after = -1;

void
standin_fail_after(int count)
{
	fail_after = count;
}

void *
palloc(Size size)
{
	void *result = malloc(size);

	assert(result != NULL);
	return result;
}

void *
palloc_extended(Size size, int flags)
{
	void *result;

	if ((flags & MCXT_ALLOC_NO_OOM) != 0 && fail_after >= 0 && fail_after-- == 0)
		return NULL;
	result = palloc(size);
	if ((flags & MCXT_ALLOC_ZERO) != 0)
		memset(result, 0, size);
	return result;
}

void *
repalloc(void *pointer, Size size)
{
	void *result = realloc(pointer, size);

	assert(result != NULL);
	return result;
}

void
pfree(void *pointer)
{
	free(pointer);
}
