/*
 * as_owner.c
 *		Run our own statements with the rights of the extension's owner.
 *
 * May depend on: acemq.h.
 */
#include "as_owner.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/*
 * The owner of the table and not pg_extension.extowner: the two are the same
 * unless an administrator gave the table away, and then nobody's triggers may
 * run with more rights than the table's owner has.  Three hits in the system
 * caches, so there is nothing to cache here.
 */
Oid
as_owner_role(void)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid outbox = OidIsValid(schema) ? get_relname_relid("outbox", schema) : InvalidOid;
	HeapTuple tuple = OidIsValid(outbox) ? SearchSysCache1(RELOID, ObjectIdGetDatum(outbox)) : NULL;
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table \"%s.outbox\" does not exist", ACEMQ_SCHEMA),
		                errhint("Create the extension in this database: CREATE EXTENSION %s.", ACEMQ_EXTENSION)));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * The search path is changed too: an operator in a schema of the caller's must
 * not be taken for ours, nor one that a trigger of the owner's means.
 */
void
as_owner_begin(AsOwner *save)
{
	Oid owner = as_owner_role();

	GetUserIdAndSecContext(&save->user, &save->sec_context);
	save->guc_nest_level = NewGUCNestLevel();
	SetUserIdAndSecContext(owner, save->sec_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
	                         false);
}

void
as_owner_end(AsOwner *save)
{
	AtEOXact_GUC(false, save->guc_nest_level);
	SetUserIdAndSecContext(save->user, save->sec_context);
}
