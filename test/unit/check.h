/*
 * check.h
 *		Counting checks for unit tests without a server.  A test program runs
 *		its cases from main() and ends with `return check_report();`.
 */
#ifndef ACEMQ_CHECK_H
#define ACEMQ_CHECK_H

#include <stdio.h>

static int checks_passed = 0;
static int checks_failed = 0;

static inline void
check_at(int ok, const char *file, int line, const char *what)
{
	if (ok)
		checks_passed++;
	else
	{
		checks_failed++;
		printf("%s:%d: failed: %s\n", file, line, what);
	}
}

#define CHECK(condition) check_at((condition) != 0, __FILE__, __LINE__, #condition)

/* The same with words instead of the condition, for tables of cases. */
#define CHECK_CASE(condition, words) check_at((condition) != 0, __FILE__, __LINE__, words)

static inline int
check_report(void)
{
	printf("%d passed, %d failed\n", checks_passed, checks_failed);
	return checks_failed > 0;
}

#endif /* ACEMQ_CHECK_H */
