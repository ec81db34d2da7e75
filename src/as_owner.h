/*
 * as_owner.h
 *		Run our own statements with the rights of the extension's owner.
 *
 * A caller of ours needs EXECUTE on a function and USAGE on the schema, never
 * a right on a table.  SECURITY DEFINER would do that for SQL functions; C
 * functions that have to look at the caller's own settings first, or that run
 * hot, switch only around the table access.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_AS_OWNER_H
#define ACEMQ_AS_OWNER_H

#include "acemq.h"

typedef struct AsOwner
{
	Oid user;
	int sec_context;
	int guc_nest_level;
} AsOwner;

/* Owner of acemq.outbox, which is the extension's owner.  Error if there is no such table. */
extern Oid as_owner_role(void);

/*
 * Become the owner, security-restricted, with search_path = pg_catalog,
 * pg_temp.  Between the two calls only statements of ours may run; names in
 * them are qualified, operators need not be.  The end of the (sub)transaction restores
 * everything on error, so no PG_TRY is needed; a subtransaction that begins
 * between the two calls has to end between them too.
 */
extern void as_owner_begin(AsOwner *save);
extern void as_owner_end(AsOwner *save);

#endif /* ACEMQ_AS_OWNER_H */
