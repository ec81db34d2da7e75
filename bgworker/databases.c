/*-------------------------------------------------------------------------
 *
 * databases.c
 *		What the launcher knows of each database of the cluster.
 *
 * The launcher is connected to no database, so pg_database, a shared catalog,
 * is read with the heap's own functions.
 *
 * May depend on: databases.h.
 *
 *-------------------------------------------------------------------------
 */
#include "databases.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

dlist_head databases = DLIST_STATIC_INIT(databases);

/* datconnlimit of a database whose DROP was interrupted; older minor releases do not name it. */
#define CONNLIMIT_OF_INVALID (-2)

static void read_pg_database(void);
static bool may_connect(Form_pg_database row);

bool
databases_scan(void)
{
	MemoryContext caller = CurrentMemoryContext;
	bool locked;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	locked = ConditionalLockRelationOid(DatabaseRelationId, AccessShareLock);
	if (locked)
		read_pg_database();
	CommitTransactionCommand();
	MemoryContextSwitchTo(caller);
	return locked;
}

static void
read_pg_database(void)
{
	Relation rel = table_open(DatabaseRelationId, NoLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple tuple;
	dlist_iter iter;

	dlist_foreach (iter, &databases)
		dlist_container(Database, node, iter.cur)->listed = false;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database row = (Form_pg_database) GETSTRUCT(tuple);
		Database *database;

		if (!may_connect(row))
			continue;
		database = databases_find(row->oid);
		if (database == NULL)
			database = databases_add(row->oid, NameStr(row->datname));
		database->listed = true;
		strlcpy(database->name, NameStr(row->datname), NAMEDATALEN);
	}

	table_endscan(scan);
	table_close(rel, NoLock);
}

/* A template is copied, and a database closed to connections is closed for a reason: no worker may sit there. */
static bool
may_connect(Form_pg_database row)
{
	return row->datallowconn && !row->datistemplate && row->datconnlimit != CONNLIMIT_OF_INVALID;
}

Database *
databases_find(Oid oid)
{
	dlist_iter iter;

	dlist_foreach (iter, &databases)
	{
		Database *database = dlist_container(Database, node, iter.cur);

		if (database->oid == oid)
			return database;
	}
	return NULL;
}

Database *
databases_add(Oid oid, const char *name)
{
	Database *database = MemoryContextAllocZero(TopMemoryContext, sizeof(Database));

	database->oid = oid;
	strlcpy(database->name, name, NAMEDATALEN);
	database->state = DATABASE_DUE;
	dlist_push_tail(&databases, &database->node);
	return database;
}

void
databases_remove(Database *database)
{
	dlist_delete(&database->node);
	pfree(database);
}
