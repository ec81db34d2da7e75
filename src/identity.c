/*
 * identity.c
 *		acemq.relay_pause() and acemq.relay_resume(), and the table they write.
 *
 * Both are ordinary transactional writes, so they survive a restart and a
 * rollback takes them back; the worker is woken at commit to read the table.
 *
 * May depend on: as_owner.h, saved_plan.h, wake.h.
 */
#include "identity.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "wake.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"

PG_FUNCTION_INFO_V1(acemq_relay_pause);
PG_FUNCTION_INFO_V1(acemq_relay_resume);

#define IS_OURS "(system_identifier = $1 AND database = $2)"

static SavedPlan read_rows = {
	"SELECT COALESCE(bool_and(" IS_OURS "), false) AS ours_only,"
	" COALESCE(bool_or(paused) FILTER (WHERE " IS_OURS "), false) AS paused FROM acemq.identity",
	2, {INT8OID, OIDOID}
};

static SavedPlan set_paused = {
	"INSERT INTO acemq.identity AS i (system_identifier, database, paused) VALUES ($1, $2, $3)"
	" ON CONFLICT ON CONSTRAINT identity_pkey DO UPDATE SET paused = $3 WHERE i.paused <> $3",
	3, {INT8OID, OIDOID, BOOLOID}
};

static SavedPlan remove_foreign = {
	"DELETE FROM acemq.identity WHERE NOT " IS_OURS,
	2, {INT8OID, OIDOID}
};

/* The same two values as pg_control_system() and pg_database show. */
static void
own_identity(Datum *values)
{
	values[0] = Int64GetDatum((int64) GetSystemIdentifier());
	values[1] = ObjectIdGetDatum(MyDatabaseId);
}

Identity
identity_read(void)
{
	Identity	identity;
	Datum		values[2];

	own_identity(values);
	saved_plan_run_fresh(&read_rows, values, NULL, true);
	identity.fenced = !spi_bool(0, 1);
	identity.paused = spi_bool(0, 2);
	SPI_freetuptable(SPI_tuptable);
	return identity;
}

static void
write_identity(bool paused)
{
	Datum		values[3];
	AsOwner		save;

	own_identity(values);
	values[2] = BoolGetDatum(paused);

	as_owner_begin(&save);
	SPI_connect();
	if (!paused)
		saved_plan_run(&remove_foreign, values, NULL);
	saved_plan_run(&set_paused, values, NULL);
	SPI_finish();
	as_owner_end(&save);
	wake_worker_at_commit();
}

/* A copy stays fenced when it is paused: only resuming says that this one may send. */
Datum
acemq_relay_pause(PG_FUNCTION_ARGS)
{
	write_identity(true);
	PG_RETURN_VOID();
}

Datum
acemq_relay_resume(PG_FUNCTION_ARGS)
{
	write_identity(false);
	PG_RETURN_VOID();
}
