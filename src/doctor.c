/*
 * doctor.c
 *		acemq.doctor(): is all well with this database's relay, in words.
 *
 * May depend on: as_owner.h, saved_plan.h, identity.h, shmem.h.
 */
#include "doctor.h"

#include "as_owner.h"
#include "identity.h"
#include "saved_plan.h"
#include "shmem.h"

#include "funcapi.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(acemq_doctor);

/* A check by a statement that returns what is wrong, or NULL. */
typedef struct TableCheck
{
	const char *name;
	const char *when_ok;
	const char *hint;
	SavedPlan statement;
} TableCheck;

#define HELD_FOR "interval '5 minutes'"

static TableCheck table_checks[] = {
    {"versions",
     "library and extension are both " ACEMQ_VERSION,
     "Run ALTER EXTENSION acemq UPDATE, or restart the server if its files are newer than the library it runs.",
     {"SELECT 'the extension is ' || extversion || ', the library " ACEMQ_VERSION "' FROM pg_extension"
      " WHERE extname = 'acemq' AND extversion <> '" ACEMQ_VERSION "'"}},
    {"old snapshots",
     "no session or replication slot holds vacuum back",
     "End that transaction: dead rows of the outbox cannot be removed, and reading it gets slower.",
     {"SELECT string_agg(held, '; ') FROM ("
      "SELECT format('process %s (%s) has had a snapshot since %s', pid, backend_type, xact_start) AS held"
      " FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
      " AND datname = current_database() AND backend_type <> 'autovacuum worker'"
      " AND xact_start < clock_timestamp() - " HELD_FOR
      " UNION ALL SELECT format('replication slot %I is %s transactions behind', slot_name, age(xmin))"
      " FROM pg_replication_slots WHERE age(xmin) > 1000000) AS holders"}},
    {"prepared transactions",
     "none is older than five minutes",
     "Commit or roll it back: until then its messages wait, and it holds vacuum back.",
     {"SELECT string_agg(format('%L, prepared %s', gid, prepared), '; ') FROM pg_prepared_xacts"
      " WHERE database = current_database() AND prepared < clock_timestamp() - " HELD_FOR}},
    {"locks",
     "nobody holds a lock that keeps the worker out",
     "The worker does not wait for locks, it skips its turn: end that transaction.",
     {"SELECT string_agg(format('process %s holds %s', pid, mode), '; ') FROM pg_locks"
      " WHERE locktype = 'relation' AND granted AND relation = 'acemq.outbox'::regclass"
      " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
      " AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"}},
    {"permanent tables",
     "no table of ours is unlogged",
     "Run ALTER TABLE ... SET LOGGED: an unlogged table is empty after a crash.",
     {"SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relkind IN ('r', 'p')"
      " AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'acemq') AND relpersistence <> 'p'"}},
    {"publication",
     "the outbox is in no publication",
     "A subscriber that has the extension would send every message again: leave acemq.outbox out, or set acemq.relay = "
     "off there.",
     {"SELECT string_agg(format('the outbox is in publication %I', pubname), '; ') FROM pg_publication_tables"
      " WHERE schemaname = 'acemq' AND tablename = 'outbox'"}},
    {"subscription",
     "the outbox is filled by no subscription",
     "These messages are sent by the publisher too: take acemq.outbox out of its publication, or set acemq.relay = off "
     "here.",
     {"SELECT string_agg(format('the outbox is filled by subscription %I', s.subname), '; ')"
      " FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid"
      " WHERE r.srrelid = 'acemq.outbox'::regclass"}}};

void
doctor_report(Doctor *doctor, const char *check, bool ok, const char *detail, const char *hint)
{
	Datum values[4] = {0};
	bool nulls[4] = {false};

	values[0] = CStringGetTextDatum(check);
	values[1] = BoolGetDatum(ok);
	values[2] = CStringGetTextDatum(detail);
	nulls[3] = ok || hint == NULL;
	if (!nulls[3])
		values[3] = CStringGetTextDatum(hint);
	tuplestore_putvalues(doctor->result->setResult, doctor->result->setDesc, values, nulls);
}

char *
doctor_count_messages(int64 count)
{
	return psprintf("%lld %s", (long long) count, count == 1 ? "message" : "messages");
}

static void
check_identity(Doctor *doctor)
{
	Identity identity = identity_read();

	doctor_report(doctor, "identity", !identity.fenced,
	              identity.fenced ? "fenced: this is a copy of another database" : "this database may relay",
	              "Call acemq.relay_resume() if this copy may send messages; leave it alone if it is for tests.");
	doctor_report(doctor, "not paused", !identity.paused,
	              identity.paused ? "relaying is paused" : "relaying is not paused", "Call acemq.relay_resume().");
}

/* How often the worker had to stay away so far says what a lock that is gone by now has cost. */
static const char *
ok_text(const TableCheck *check)
{
	AcemqSlot *slot = acemq_my_slot();
	uint64 skipped = slot ? pg_atomic_read_u64(&slot->skipped_turns) : 0;

	if (strcmp(check->name, "locks") != 0 || skipped == 0)
		return check->when_ok;
	return psprintf("%s now; turns skipped so far: %llu", check->when_ok, (unsigned long long) skipped);
}

void
doctor_check_tables(Doctor *doctor)
{
	check_identity(doctor);
	for (int i = 0; i < lengthof(table_checks); i++)
	{
		TableCheck *check = &table_checks[i];
		char *problem;

		saved_plan_run_fresh(&check->statement, NULL, NULL, true);
		problem = SPI_processed > 0 ? spi_text(0, 1) : NULL;
		SPI_freetuptable(SPI_tuptable);
		doctor_report(doctor, check->name, problem == NULL, problem ? problem : ok_text(check), check->hint);
	}
}

Datum
acemq_doctor(PG_FUNCTION_ARGS)
{
	Doctor doctor;
	AsOwner save;

	InitMaterializedSRF(fcinfo, 0);
	doctor.result = (ReturnSetInfo *) fcinfo->resultinfo;

	doctor_check_processes(&doctor);
	as_owner_begin(&save);
	SPI_connect();
	doctor_check_settings(&doctor);
	doctor_check_tables(&doctor);
	SPI_finish();
	as_owner_end(&save);
	doctor_check_relay(&doctor);
	return (Datum) 0;
}
