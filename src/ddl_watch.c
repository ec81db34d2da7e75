/*-------------------------------------------------------------------------
 *
 * ddl_watch.c
 *		Statements of other people that our processes have to make room for.
 *
 * A worker is a session: DROP DATABASE, ALTER DATABASE RENAME or SET
 * TABLESPACE and CREATE DATABASE ... TEMPLATE refuse to work while there is
 * one.  Before such a statement we place a hold on the database, ask its
 * worker to leave and wait until it is gone.  The hold lasts until the end of the
 * (sub)transaction, not of the statement: until the commit the launcher would
 * still see a database that has just been dropped.  Every way out of a
 * transaction, a FATAL one included, passes the callbacks here.
 *
 * DROP and ALTER EXTENSION are noticed too, and at commit the worker is told
 * to go; the one that is started in its place looks at what is there now.
 *
 * A statement needs no privilege that it would not need without us: a worker
 * is only stopped for a user who may do what the statement says.
 *
 * May depend on: shmem.h, guc.h, compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "ddl_watch.h"

#include "compat.h"
#include "guc.h"
#include "shmem.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* How long past acemq.io_timeout a worker may take to be gone: what it does in between is bounded by that. */
#define GRACE_MS 2000

/* What a worker that is in the way is told. */
typedef enum Ask
{
	ASK_NOTHING,
	ASK_TO_LEAVE,
	ASK_BY_SIGNAL
} Ask;

static ProcessUtility_hook_type previous_hook = NULL;

/* What the current transaction has to tell at its end. */
static bool holds_placed = false;
static bool databases_changed = false;
static bool extension_changed = false;

static void watch_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
                          ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest,
                          QueryCompletion *completion);
static Oid database_in_the_way(Node *statement);
static bool may_want_alone(Oid database, Node *statement);
static Oid template_of(const CreatedbStmt *statement);
static bool may_create_databases(void);
static bool has_option(List *options, const char *name);
static void clear_the_way(Oid database);
static bool ask_worker(Oid database, Ask ask);
static bool changes_databases(Node *statement);
static bool changes_extension(Node *statement);
static bool lists_name(List *objects, const char *name);
static void transaction_ends(XactEvent event, void *arg);
static void subtransaction_ends(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg);

/* Registered here, in the postmaster, so once for every backend. */
void
ddl_watch_init(void)
{
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
	RegisterXactCallback(transaction_ends, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}

static void
watch_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree, ProcessUtilityContext context,
              ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest, QueryCompletion *completion)
{
	ProcessUtility_hook_type next = previous_hook ? previous_hook : standard_ProcessUtility;

	/* Many statements come by here: the common ones cost one comparison of a node tag. */
	switch (nodeTag(pstmt->utilityStmt))
	{
		case T_DropdbStmt:
		case T_CreatedbStmt:
		case T_AlterDatabaseStmt:
		case T_RenameStmt:
		case T_DropStmt:
		case T_DropOwnedStmt:
		case T_AlterExtensionStmt:
			if (!RecoveryInProgress())
			{
				Oid database = database_in_the_way(pstmt->utilityStmt);

				databases_changed |= changes_databases(pstmt->utilityStmt);
				extension_changed |= changes_extension(pstmt->utilityStmt);
				if (OidIsValid(database) && may_want_alone(database, pstmt->utilityStmt))
					clear_the_way(database);
			}
			break;
		default:
			break;
	}
	next(pstmt, query, read_only_tree, context, params, environment, dest, completion);
}

/*
 * The database that the statement wants for itself, if the user may run it;
 * else InvalidOid, and the statement reports what it finds wrong.
 */
static Oid
database_in_the_way(Node *statement)
{
	const char *name = NULL;
	Oid database;

	if (IsA(statement, CreatedbStmt))
		return template_of((CreatedbStmt *) statement);
	else if (IsA(statement, DropdbStmt))
		name = ((DropdbStmt *) statement)->dbname;
	else if (IsA(statement, AlterDatabaseStmt) && has_option(((AlterDatabaseStmt *) statement)->options, "tablespace"))
		name = ((AlterDatabaseStmt *) statement)->dbname;
	else if (IsA(statement, RenameStmt) && ((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
	{
		if (may_create_databases())
			name = ((RenameStmt *) statement)->subname;
	}

	database = name != NULL ? get_database_oid(name, true) : InvalidOid;
	return OidIsValid(database) && compat_owns_database(database) ? database : InvalidOid;
}

/* A session may copy its own database; the other statements are refused there, and nobody need go for that. */
static bool
may_want_alone(Oid database, Node *statement)
{
	return database != MyDatabaseId || IsA(statement, CreatedbStmt);
}

/* A marked template may be copied by whoever may create databases, another database by its owner. */
static Oid
template_of(const CreatedbStmt *statement)
{
	const char *name = "template1";
	ListCell *cell;
	Oid database;
	HeapTuple tuple;
	bool allowed;

	foreach (cell, statement->options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
			name = defGetString(option);
	}

	database = get_database_oid(name, true);
	tuple = OidIsValid(database) ? SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database)) : NULL;
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	allowed = may_create_databases() &&
	          (((Form_pg_database) GETSTRUCT(tuple))->datistemplate || compat_owns_database(database));
	ReleaseSysCache(tuple);
	return allowed ? database : InvalidOid;
}

/* The server has this test too, but offers it to extensions only in some minor releases. */
static bool
may_create_databases(void)
{
	HeapTuple tuple;
	bool allowed;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	allowed = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return allowed;
}

static bool
has_option(List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
		if (strcmp(((DefElem *) lfirst(cell))->defname, name) == 0)
			return true;
	return false;
}

/*
 * Hold the database and wait until its worker is gone.  The wait can be
 * cancelled; when it takes too long we go ahead, and the statement says that
 * the database is in use.
 */
static void
clear_the_way(Oid database)
{
	TimestampTz begun = GetCurrentTimestamp();
	TimestampTz deadline = TimestampTzPlusMilliseconds(begun, acemq_io_timeout + GRACE_MS);
	TimestampTz patience = TimestampTzPlusMilliseconds(begun, ACEMQ_LEAVE_MS);

	if (!acemq_hold_place(database, GetCurrentTransactionNestLevel()))
		return;
	holds_placed = true;
	if (!ask_worker(database, ASK_TO_LEAVE))
		return;

	ConditionVariablePrepareToSleep(&acemq_shared->worker_gone);
	while (ask_worker(database, GetCurrentTimestamp() < patience ? ASK_NOTHING : ASK_BY_SIGNAL))
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);

		/* In slices, because a worker that outlived its launcher goes without a broadcast. */
		if (left <= 0)
			break;
		(void) ConditionVariableTimedSleep(&acemq_shared->worker_gone, Min(left, 100), PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

/*
 * True if there is a worker.  The launcher asks it as well, but may not be
 * there; then an attached one is all there can be to wait for.
 */
static bool
ask_worker(Oid database, Ask ask)
{
	AcemqSlot *slot;
	bool is_there = false;

	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	slot = acemq_slot_of(database);
	if (slot != NULL)
	{
		if (ask == ASK_TO_LEAVE)
			acemq_ask_to_leave(slot);
		if (ask == ASK_BY_SIGNAL && slot->worker_pid != 0)
			(void) kill(slot->worker_pid, SIGTERM);
		slot->ended_on_request = true;
		is_there = slot->worker_pid != 0 || (slot->launched && acemq_shared->launcher_pid != 0);
	}
	LWLockRelease(acemq_shared->lock);
	return is_there;
}

/* Also new databases: the launcher would find them within a minute by itself. */
static bool
changes_databases(Node *statement)
{
	return IsA(statement, DropdbStmt) || IsA(statement, CreatedbStmt) || IsA(statement, AlterDatabaseStmt) ||
	       (IsA(statement, RenameStmt) && ((RenameStmt *) statement)->renameType == OBJECT_DATABASE);
}

/* May be true of a statement that leaves the extension alone; that costs one restart of the worker. */
static bool
changes_extension(Node *statement)
{
	if (IsA(statement, AlterExtensionStmt))
		return strcmp(((AlterExtensionStmt *) statement)->extname, ACEMQ_EXTENSION) == 0;
	if (IsA(statement, DropStmt))
	{
		DropStmt *drop = (DropStmt *) statement;

		return (drop->removeType == OBJECT_EXTENSION && lists_name(drop->objects, ACEMQ_EXTENSION)) ||
		       (drop->removeType == OBJECT_SCHEMA && lists_name(drop->objects, ACEMQ_SCHEMA));
	}
	return IsA(statement, DropOwnedStmt);
}

static bool
lists_name(List *objects, const char *name)
{
	ListCell *cell;

	foreach (cell, objects)
		if (strcmp(strVal(lfirst(cell)), name) == 0)
			return true;
	return false;
}

/* At commit this runs after the changes have become visible to others.  It must not raise an error. */
static void
transaction_ends(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;

	if (event == XACT_EVENT_COMMIT && databases_changed)
		acemq_wake_launcher_for(InvalidOid);
	if (holds_placed)
		acemq_hold_release(0);
	if (event == XACT_EVENT_COMMIT)
	{
		AcemqSlot *slot = extension_changed ? acemq_my_slot() : NULL;

		if (slot != NULL)
			acemq_ask_to_leave(slot);
	}
	holds_placed = databases_changed = extension_changed = false;
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (!holds_placed)
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		acemq_hold_release(GetCurrentTransactionNestLevel());
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		acemq_hold_reparent(GetCurrentTransactionNestLevel());
}
