/*
 * errors.h (stand-in, part of postgres.h)
 *		ereport(): the texts are formatted, so that what they point to is read,
 *		and ERROR goes back to where standin_error_return was set.
 */
#ifndef ACEMQ_STANDIN_ERRORS_H
#define ACEMQ_STANDIN_ERRORS_H

#include <setjmp.h>

#define ERROR 21

/* errors.c only */
extern jmp_buf *standin_error_return;
extern int standin_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void standin_raise(void) __attribute__((noreturn));

#define errcode(code)        ((void) (code))
#define errmsg(...)          standin_error(__VA_ARGS__)
#define errdetail(...)       standin_error(__VA_ARGS__)
#define errhint(...)         standin_error(__VA_ARGS__)
#define errcontext(...)      standin_error(__VA_ARGS__)
#define ereport(level, rest) ((void) (rest), standin_raise())
#define elog(level, ...)     ((void) standin_error(__VA_ARGS__), standin_raise())

#define ERRCODE_CHARACTER_NOT_IN_REPERTOIRE 0
#define ERRCODE_INVALID_NAME                0
#define ERRCODE_INVALID_PARAMETER_VALUE     0
#define ERRCODE_NAME_TOO_LONG               0
#define ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE  0
#define ERRCODE_PROGRAM_LIMIT_EXCEEDED      0
#define ERRCODE_RESERVED_NAME               0

typedef struct ErrorContextCallback
{
	struct ErrorContextCallback *previous;
	void (*callback)(void *arg);
	void *arg;
} ErrorContextCallback;

extern ErrorContextCallback *error_context_stack;

#endif /* ACEMQ_STANDIN_ERRORS_H */
