/*
 * postgres.h (stand-in)
 *		Just enough of the server's first header for the pure files of src/ to
 *		be compiled and tested by themselves, under sanitizers that the server
 *		itself would not run with.
 */
#ifndef ACEMQ_STANDIN_POSTGRES_H
#define ACEMQ_STANDIN_POSTGRES_H

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef int32_t int32;
typedef int64_t int64;
typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef size_t Size;
typedef int pgsocket;
typedef struct MemoryContextData *MemoryContext;

typedef uintptr_t Datum;
typedef unsigned int Oid;

/* The oldest one we support: the stand-ins are for what all of them have. */
#define PG_VERSION_NUM   150000
#define PGINVALID_SOCKET (-1)
#define InvalidOid       0

typedef struct MemoryContextCallback
{
	void (*func)(void *arg);
	void *arg;
	struct MemoryContextCallback *next;
} MemoryContextCallback;

#define Assert(condition)                    assert(condition)
#define lengthof(array)                      (sizeof(array) / sizeof((array)[0]))
#define Min(x, y)                            ((x) < (y) ? (x) : (y))
#define Max(x, y)                            ((x) > (y) ? (x) : (y))
#define unconstify(type, expression)         ((type) (expression))
#define MAKE_SQLSTATE(a, b, c, d, e)         0
#define UINT64CONST(x)                       UINT64_C(x)
#define PG_INT64_MAX                         INT64_MAX
#define StaticAssertDecl(condition, message) _Static_assert(condition, message)

#define MCXT_ALLOC_HUGE   0x01
#define MCXT_ALLOC_NO_OOM 0x02
#define MCXT_ALLOC_ZERO   0x04

extern void *palloc(Size size);
extern void *palloc0(Size size);
extern void *palloc_extended(Size size, int flags);
extern void *repalloc(void *pointer, Size size);
extern void pfree(void *pointer);

static inline size_t
standin_strlcpy(char *target, const char *source, size_t size)
{
	snprintf(target, size, "%s", source);
	return strlen(source);
}

#define strlcpy(target, source, size) standin_strlcpy(target, source, size)

/* contexts.c only */
extern MemoryContext MemoryContextSwitchTo(MemoryContext context);
extern void *MemoryContextAlloc(MemoryContext context, Size size);
extern void *MemoryContextAllocZero(MemoryContext context, Size size);
extern char *MemoryContextStrdup(MemoryContext context, const char *text);
extern char *pnstrdup(const char *text, Size len);
extern char *pstrdup(const char *text);

/* Let the allocation after `count` others that may fail, fail; -1: none. */
extern void standin_fail_after(int count);

#include "errors.h"
#include "varatt.h"

#endif /* ACEMQ_STANDIN_POSTGRES_H */
