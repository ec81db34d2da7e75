/*
 * identity.c
 *		acemq.relay_pause() and acemq.relay_resume(), and the table they write.
 *
 * Both are ordinary transactional writes, so they survive a restart and a
 * rollback takes them back; the worker is woken at commit to read the table.
 *
 * May depend on: as_owner.h, saved_plan.h, shmem.h, wake.h.
 */
#include "identity.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "shmem.h"
#include "wake.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(acemq_relay_pause);
PG_FUNCTION_INFO_V1(acemq_relay_resume);
PG_FUNCTION_INFO_V1(acemq_identity_insert);

#define IS_OURS "(system_identifier = $1 AND database = $2)"

static SavedPlan read_rows = {"SELECT COALESCE(bool_and(" IS_OURS "), false) AS ours_only,"
                              " COALESCE(bool_or(paused) FILTER (WHERE " IS_OURS
                              "), false) AS paused FROM acemq.identity",
                              2,
                              {INT8OID, OIDOID}};

static SavedPlan set_paused = {"UPDATE acemq.identity SET paused = $3 WHERE " IS_OURS, 3, {INT8OID, OIDOID, BOOLOID}};

static SavedPlan add_row = {"INSERT INTO acemq.identity (system_identifier, database, paused) VALUES ($1, $2, $3)",
                            3,
                            {INT8OID, OIDOID, BOOLOID}};

static SavedPlan pause_too = {
    "UPDATE acemq.identity SET paused = paused OR $3 WHERE " IS_OURS, 3, {INT8OID, OIDOID, BOOLOID}};

static SavedPlan remove_foreign = {"DELETE FROM acemq.identity WHERE NOT " IS_OURS, 2, {INT8OID, OIDOID}};

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
	Identity identity;
	Datum values[2];

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
	Datum values[3];
	AsOwner save;

	own_identity(values);
	values[2] = BoolGetDatum(paused);

	as_owner_begin(&save);
	SPI_connect();
	if (!paused)
		saved_plan_run(&remove_foreign, values, NULL);
	if (saved_plan_run(&set_paused, values, NULL) == SPI_OK_UPDATE && SPI_processed == 0)
		saved_plan_run(&add_row, values, NULL);
	SPI_finish();
	as_owner_end(&save);
	wake_worker_at_commit();
}

/* The other switch, of which the caller may know nothing. */
static bool
worker_is_off(void)
{
	AcemqSlot *slot = acemq_my_slot();
	uint32 settings = slot && slot->worker_pid != 0 ? pg_atomic_read_u32(&slot->worker_settings) : 0;

	return (settings & ACEMQ_WORKER_READ_SETTINGS) != 0 && (settings & ACEMQ_WORKER_RELAY_ON) == 0;
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
	if (worker_is_off())
		ereport(NOTICE, (errmsg("relaying stays off here: acemq.relay is off in the worker of this database"),
		                 errhint("Turn acemq.relay on; if that is a setting of the database, call "
		                         "acemq.worker_restart() afterwards.")));
	PG_RETURN_VOID();
}

/*
 * Before a row is inserted.  A dump that is restored into the database it was
 * taken from brings the row that CREATE EXTENSION has just added: that is no
 * error, and all it can say is that relaying was paused.
 */
Datum
acemq_identity_insert(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple row;
	Datum values[3];
	bool isnull;
	AsOwner save;
	uint64 there;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
	    !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
		                errmsg("function \"%s\" can only be called as a trigger before insert", "_identity_insert")));
	row = trigger->tg_trigtuple;
	for (int i = 0; i < lengthof(values); i++)
	{
		values[i] = heap_getattr(row, i + 1, RelationGetDescr(trigger->tg_relation), &isnull);
		if (isnull)
			return PointerGetDatum(row);
	}

	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run(&pause_too, values, NULL);
	there = SPI_processed;
	SPI_finish();
	as_owner_end(&save);
	return PointerGetDatum(there > 0 ? NULL : row);
}
