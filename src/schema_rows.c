/*
 * schema_rows.c
 *		Looking for rows of acemq.schema_registry.
 *
 * The table is read through its indexes directly.  Registering what is known
 * already is what a producer does at every start, or for every message, and
 * must not cost more than the SELECT it would write itself.
 *
 * May depend on: store_table.h.
 */
#include "schema_rows.h"

#include "store_table.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

/* The three indexes, and with them the orders in which rows can be read. */
#define BY_ID          "schema_registry_pkey"
#define BY_FINGERPRINT "schema_registry_fingerprint"
#define BY_VERSION     "schema_registry_version"

static Oid
relation_of(const char *name)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid relid = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	if (!OidIsValid(relid))
		ereport(ERROR,
		        (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation \"%s.%s\" does not exist", ACEMQ_SCHEMA, name),
		         errhint("It is part of the extension %s: put it back as CREATE EXTENSION made it.", ACEMQ_EXTENSION)));
	return relid;
}

static void
key_is_int(ScanKey key, AttrNumber column, int32 value)
{
	ScanKeyInit(key, column, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(value));
}

/* ScanKeyInit() leaves the key with the collation of the table's columns, "C". */
static void
key_is_text(ScanKey key, AttrNumber column, text *value)
{
	ScanKeyInit(key, column, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(value));
}

/*
 * What each of them must have, lest we compare other columns than we mean.
 * (A predicate is not read, because that runs the functions in it.)
 */
static bool
index_is_ours(Relation index, Relation table, const char *name)
{
	const int16 *columns = index->rd_index->indkey.values;
	bool by_id = strcmp(name, BY_ID) == 0;
	int16 second = strcmp(name, BY_VERSION) == 0 ? SCHEMA_VERSION : SCHEMA_FINGERPRINT;

	if (index->rd_index->indrelid != RelationGetRelid(table) || index->rd_rel->relam != BTREE_AM_OID ||
	    !index->rd_index->indisunique || !index->rd_index->indisvalid ||
	    !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) ||
	    index->rd_index->indnkeyatts != (by_id ? 1 : 2))
		return false;
	return by_id ? columns[0] == SCHEMA_ID : columns[0] == SCHEMA_SUBJECT && columns[1] == second;
}

/* The locks are kept to the end of the transaction, as those of a SELECT are. */
static void
scan_open(SchemaScan *scan, const char *index, int nkeys, ScanKey keys)
{
	scan->table = store_table_open(&store_schema_registry, AccessShareLock);
	scan->index = index_open(relation_of(index), AccessShareLock);
	if (!index_is_ours(scan->index, scan->table, index))
		store_table_refuse(&store_schema_registry);
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->scan = systable_beginscan_ordered(scan->table, scan->index, scan->snapshot, nkeys, keys);
}

void
schema_scan_close(SchemaScan *scan)
{
	systable_endscan_ordered(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	index_close(scan->index, NoLock);
	table_close(scan->table, NoLock);
}

void
schema_versions_open(SchemaScan *scan, text *subject)
{
	ScanKeyData key;

	key_is_text(&key, SCHEMA_SUBJECT, subject);
	scan_open(scan, BY_VERSION, 1, &key);
}

HeapTuple
schema_versions_next(SchemaScan *scan)
{
	return systable_getnext_ordered(scan->scan, ForwardScanDirection);
}

/* The last row in the order of the index, as a value. */
static bool
find_last(const char *index, int nkeys, ScanKey keys, Datum *row)
{
	SchemaScan scan;
	HeapTuple tuple;

	scan_open(&scan, index, nkeys, keys);
	tuple = systable_getnext_ordered(scan.scan, BackwardScanDirection);
	if (tuple != NULL)
		*row = heap_copy_tuple_as_datum(tuple, RelationGetDescr(scan.table));
	schema_scan_close(&scan);
	return tuple != NULL;
}

/* One of its columns only, which spares a large definition the way out of its own table. */
static int32
find_last_int(const char *index, int nkeys, ScanKey keys, AttrNumber column)
{
	SchemaScan scan;
	HeapTuple tuple;
	int32 value = 0;
	bool isnull;

	scan_open(&scan, index, nkeys, keys);
	tuple = systable_getnext_ordered(scan.scan, BackwardScanDirection);
	if (tuple != NULL)
		value = DatumGetInt32(heap_getattr(tuple, column, RelationGetDescr(scan.table), &isnull));
	schema_scan_close(&scan);
	return value;
}

bool
schema_find_id(int32 id, Datum *row)
{
	ScanKeyData key;

	key_is_int(&key, SCHEMA_ID, id);
	return find_last(BY_ID, 1, &key, row);
}

bool
schema_find_latest(text *subject, Datum *row)
{
	ScanKeyData key;

	key_is_text(&key, SCHEMA_SUBJECT, subject);
	return find_last(BY_VERSION, 1, &key, row);
}

bool
schema_find_version(text *subject, int32 version, Datum *row)
{
	ScanKeyData keys[2];

	key_is_text(&keys[0], SCHEMA_SUBJECT, subject);
	key_is_int(&keys[1], SCHEMA_VERSION, version);
	return find_last(BY_VERSION, 2, keys, row);
}

/*
 * A large definition is not fetched from where it is kept apart from the row:
 * the caller has the same bytes, and fetching them would cost more than the rest.
 */
static Datum
row_with_definition(HeapTuple tuple, TupleDesc desc, text *definition)
{
	Datum *values = palloc(desc->natts * sizeof(Datum));
	bool *isnull = palloc(desc->natts * sizeof(bool));

	heap_deform_tuple(tuple, desc, values, isnull);
	values[SCHEMA_DEFINITION - 1] = PointerGetDatum(definition);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, isnull));
}

bool
schema_find_entry(const SchemaEntry *entry, Datum *row)
{
	ScanKeyData keys[2];
	SchemaScan scan;
	HeapTuple tuple;

	key_is_text(&keys[0], SCHEMA_SUBJECT, entry->subject);
	key_is_text(&keys[1], SCHEMA_FINGERPRINT, entry->fingerprint);
	scan_open(&scan, BY_FINGERPRINT, 2, keys);
	tuple = systable_getnext_ordered(scan.scan, ForwardScanDirection);
	if (tuple != NULL && HeapTupleHasExternal(tuple))
		*row = row_with_definition(tuple, RelationGetDescr(scan.table), entry->definition);
	else if (tuple != NULL)
		*row = heap_copy_tuple_as_datum(tuple, RelationGetDescr(scan.table));
	schema_scan_close(&scan);
	return tuple != NULL;
}

int32
schema_max_id(void)
{
	return find_last_int(BY_ID, 0, NULL, SCHEMA_ID);
}

int32
schema_max_version(text *subject)
{
	ScanKeyData key;

	key_is_text(&key, SCHEMA_SUBJECT, subject);
	return find_last_int(BY_VERSION, 1, &key, SCHEMA_VERSION);
}

int32
schema_row_int(Datum row, AttrNumber column)
{
	bool isnull;

	return DatumGetInt32(GetAttributeByNum(DatumGetHeapTupleHeader(row), column, &isnull));
}

char *
schema_row_text(Datum row, AttrNumber column)
{
	bool isnull;

	return TextDatumGetCString(GetAttributeByNum(DatumGetHeapTupleHeader(row), column, &isnull));
}
