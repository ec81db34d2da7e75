/*-------------------------------------------------------------------------
 *
 * kill_points.c
 *		The end of a worker at a step that a test has named.
 *
 * May depend on: src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "kill_points.h"

#ifdef ACEMQ_KILL_POINTS

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "guc.h"

/* In the data directory, where our processes are. */
#define REACHED_FILE "acemq_kill_point.reached"

static bool is_chosen(const char *name, int *after, bool *error);
static bool first_to_reach(void);

void
kill_point_reached(KillPoint point)
{
#define KILL_POINT_NAME(symbol, name) name,
	static const char *const names[] = {KILL_POINT_TABLE(KILL_POINT_NAME)};
	static int passed[KILL_POINT_COUNT];
	int after;
	bool error;

	if (!is_chosen(names[point], &after, &error) || ++passed[point] < after || !first_to_reach())
		return;
	ereport(LOG, (errmsg("acemq: kill point %s", names[point])));
	if (error)
		ereport(ERROR, (errmsg("acemq: error at kill point %s", names[point])));
	(void) kill(getpid(), SIGKILL);
	for (;;)
		(void) pause();
}

/* Is it the one of the setting, and the how many-th time counts? */
static bool
is_chosen(const char *name, int *after, bool *error)
{
	size_t len = strlen(name);
	const char *rest;

	if (acemq_kill_point == NULL || strncmp(acemq_kill_point, name, len) != 0)
		return false;
	rest = acemq_kill_point + len;
	if (*rest != '\0' && *rest != ':')
		return false;
	*after = *rest == ':' ? Max(atoi(rest + 1), 1) : 1;
	*error = strstr(rest, ":error") != NULL;
	return true;
}

static bool
first_to_reach(void)
{
	int fd = open(REACHED_FILE, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);

	if (fd < 0)
		return false;
	(void) close(fd);
	return true;
}

#endif /* ACEMQ_KILL_POINTS */
