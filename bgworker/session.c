/*-------------------------------------------------------------------------
 *
 * session.c
 *		Settings of a worker's session that must not be somebody else's.
 *
 * A worker gets what a user has put on the database or on the superuser's
 * role.  A read-only default, a statement timeout of a millisecond or a
 * search_path must not change what our statements do, and planner switches
 * that somebody turned off for their own queries must not slow them down.
 *
 * May depend on: nothing of ours.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "session.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "utils/guc.h"

typedef struct Setting
{
	const char *name;
	const char *value;
} Setting;

/* Of the database we are connected to.  A rename ends the worker, so it stays right. */
static char database_name[NAMEDATALEN];

static void name_database(void *process);

static const Setting settings[] = {
    {"role", "none"},
    {"search_path", ""},
    {"session_replication_role", "origin"},
    {"TimeZone", "UTC"},
    {"DateStyle", "ISO"},
    {"IntervalStyle", "postgres"},
    {"bytea_output", "hex"},
    {"extra_float_digits", "1"},

    /* Locks are taken conditionally; what is left (of tuples, of catalogs) may not keep us waiting. */
    {"lock_timeout", "5ms"},
    {"statement_timeout", "0"},
    {"idle_in_transaction_session_timeout", "0"},
    {"idle_session_timeout", "0"},
    {"transaction_timeout", "0"},

    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},

    /* Durable here, but no waiting for a standby: the relay looks itself how far that one is. */
    {"synchronous_commit", "local"},
    {"zero_damaged_pages", "off"},

    {"plan_cache_mode", "force_generic_plan"},
    {"jit", "off"},
    {"max_parallel_workers_per_gather", "0"},
    {"force_parallel_mode", "off"},
    {"debug_parallel_query", "off"},

    /*
	 * Our tables go from empty to millions of rows and back while their
	 * statistics say something else, and our plans are kept: every statement is
	 * written for an index that gives its order, so nothing else is to be
	 * considered.
	 */
    {"enable_seqscan", "off"},
    {"enable_bitmapscan", "off"},
    {"enable_sort", "off"},
    {"enable_indexscan", "on"},
    {"enable_indexonlyscan", "on"},
    {"enable_tidscan", "on"},
    {"enable_incremental_sort", "on"},
    {"enable_hashagg", "on"},
    {"enable_hashjoin", "on"},
    {"enable_mergejoin", "on"},
    {"enable_nestloop", "on"},
    {"enable_material", "on"},
    {"enable_memoize", "on"},
};

void
session_reload_first(void)
{
	ConfigReloadPending = true;
}

/* Not every version of the server knows every one of them. */
void
session_fix_settings(void)
{
	for (int i = 0; i < lengthof(settings); i++)
		if (GetConfigOption(settings[i].name, true, false) != NULL)
			SetConfigOption(settings[i].name, settings[i].value, PGC_SUSET, PGC_S_OVERRIDE);

	/*
	 * Messages are built outside transactions, in UTF-8.  Conversion there is
	 * only possible to the client's encoding, whose functions are looked up
	 * now.
	 */
	StartTransactionCommand();
	SetConfigOption("client_encoding", "UTF8", PGC_SUSET, PGC_S_OVERRIDE);
	CommitTransactionCommand();
}

/* A log_line_prefix cannot: its %d stays empty in a background worker. */
void
session_name_messages(const char *process)
{
	static ErrorContextCallback callback;
	const char *name;

	StartTransactionCommand();
	name = get_database_name(MyDatabaseId);
	strlcpy(database_name, name != NULL ? name : "", sizeof(database_name));
	CommitTransactionCommand();

	callback.callback = name_database;
	callback.arg = unconstify(char *, process);
	callback.previous = error_context_stack;
	error_context_stack = &callback;
}

static void
name_database(void *process)
{
	errcontext("%s of database \"%s\"", (const char *) process, database_name);
}

void
session_keep_memory(void)
{
#ifdef __GLIBC__
	(void) mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
	(void) mallopt(M_TRIM_THRESHOLD, 8 * 1024 * 1024);
#endif
}
