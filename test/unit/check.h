/*
 * check.h
 *		Counting tests without a server.  A test program runs its test functions
 *		from main() with RUN() and ends with `return check_report();`.  What is
 *		counted is test functions: one passes if none of its checks fails.
 */
#ifndef ACEMQ_CHECK_H
#define ACEMQ_CHECK_H

#include <stdio.h>

static int tests_passed = 0;
static int tests_failed = 0;
static int checks_failed = 0;

static inline void
check_at(int ok, const char *file, int line, const char *what)
{
	if (ok)
		return;
	checks_failed++;
	printf("%s:%d: failed: %s\n", file, line, what);
}

#define CHECK(condition) check_at((condition) != 0, __FILE__, __LINE__, #condition)

/* The same with words instead of the condition, for tables of cases. */
#define CHECK_CASE(condition, words) check_at((condition) != 0, __FILE__, __LINE__, words)

#define RUN(test)                                                                                                      \
	do                                                                                                                 \
	{                                                                                                                  \
		checks_failed = 0;                                                                                             \
		test;                                                                                                          \
		if (checks_failed == 0)                                                                                        \
			tests_passed++;                                                                                            \
		else                                                                                                           \
			tests_failed++;                                                                                            \
	} while (0)

static inline int
check_report(void)
{
	printf("%d passed, %d failed\n", tests_passed, tests_failed);
	return tests_failed > 0;
}

#endif /* ACEMQ_CHECK_H */
