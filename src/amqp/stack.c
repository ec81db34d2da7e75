/*
 * stack.c
 *		Room on the stack for what the client library does with it.
 *
 * May depend on: stack.h, rabbit.h.
 */
#include "stack.h"

#include <sys/resource.h>

#include "rabbit.h"

/* An array in an array takes five bytes of the frame: its kind and its length. */
#define MOST_LEVELS (RABBIT_FRAME_MAX / 5)

/*
 * Debian's 0.11 on x86-64 takes 96 bytes for an array and 112 for a table: 2.4
 * MB for a whole frame.  Another compiler may take more.
 */
#define STACK_PER_LEVEL 256

/* For whoever calls the library, and for signal handlers. */
#define RESERVE (1024 * 1024)

#define STACK_NEEDED ((rlim_t) MOST_LEVELS * STACK_PER_LEVEL + RESERVE)
#define STACK_WANTED ((rlim_t) 16 * 1024 * 1024)

StaticAssertDecl(STACK_NEEDED <= 8 * 1024 * 1024, "the limit that systems come with has to do");

static const char *obstacle = "broker_process_init() has not been called";

/* Later versions stop at 100 levels. */
static bool
library_has_a_limit(void)
{
	return amqp_version_number() >= AMQP_VERSION_CODE(0, 14, 0, 0);
}

static bool
covers(rlim_t limit, rlim_t size)
{
	return limit == RLIM_INFINITY || limit >= size;
}

void
stack_prepare(void)
{
	struct rlimit limit;

	obstacle = NULL;
	if (library_has_a_limit())
		return;
	if (getrlimit(RLIMIT_STACK, &limit) != 0)
	{
		obstacle = "the limit of the stack size cannot be read";
		return;
	}
	if (!covers(limit.rlim_cur, STACK_WANTED))
	{
		struct rlimit more = limit;

		more.rlim_cur = covers(limit.rlim_max, STACK_WANTED) ? STACK_WANTED : limit.rlim_max;
		if (setrlimit(RLIMIT_STACK, &more) == 0)
			limit = more;
	}
	if (!covers(limit.rlim_cur, STACK_NEEDED))
		obstacle =
		    "the stack of a process may not grow to 8 MB (ulimit -H -s), which rabbitmq-c before 0.14 may need to "
		    "read what it receives";
}

bool
broker_may_consume(const char **why)
{
	*why = obstacle != NULL ? obstacle : "";
	return obstacle == NULL;
}
