/*
 * errors.c (stand-in)
 */
#include "postgres.h"

jmp_buf *standin_error_return = NULL;
ErrorContextCallback *error_context_stack = NULL;

static char text[4096];

int
standin_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return 0;
}

void
standin_raise(void)
{
	for (ErrorContextCallback *context = error_context_stack; context != NULL; context = context->previous)
		context->callback(context->arg);
	error_context_stack = NULL;
	if (standin_error_return == NULL)
	{
		fprintf(stderr, "an error nobody expects: %s\n", text);
		abort();
	}
	longjmp(*standin_error_return, 1);
}
