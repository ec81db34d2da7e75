/*
 * doctor_settings.c
 *		acemq.doctor(): checks of the settings.
 *
 * What counts are those of the worker: a session may have others, by SET, by
 * ALTER ROLE, or because a setting of the database was changed since the worker
 * started.  And one in the configuration file that was not taken is in
 * force nowhere, so only the file can tell of it.
 *
 * May depend on: doctor.h, broker_url.h, guc.h, saved_plan.h, shmem.h.
 */
#include "doctor.h"

#include "broker_url.h"
#include "guc.h"
#include "saved_plan.h"
#include "shmem.h"

#include "lib/stringinfo.h"

static SavedPlan may_read_files = {
    "SELECT has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE')"};

/* Besides ours: a line that cannot be read, or a name that nobody knows, keeps the whole file from being taken. */
static SavedPlan file_errors = {
    "SELECT name, setting, error, format('%s, line %s', regexp_replace(sourcefile, '^.*/', ''), sourceline)"
    " FROM pg_catalog.pg_show_all_file_settings()"
    " WHERE error IS NOT NULL AND (name IS NULL OR name ILIKE 'acemq.%' OR error LIKE 'unrecognized%') ORDER BY seqno"};

/*
 * One line of the list.  Never the value, which may hold a password; and of a
 * line that cannot be read not the error either, which repeats a part of it.
 */
static char *
file_error_text(uint64 row)
{
	char *name = spi_text(row, 1);
	char *value = spi_text(row, 2);
	char *place = spi_text(row, 4);
	BrokerEndpoint *endpoints;
	const char *problem;

	if (name == NULL)
		return psprintf("a line that cannot be read (%s)", place);
	if (pg_strcasecmp(name, "acemq.url") == 0 && value != NULL && broker_url_parse(value, &endpoints, &problem) < 0)
		return psprintf("%s cannot be used: %s (%s)", name, problem, place);
	return psprintf("%s: %s (%s)", name, spi_text(row, 3), place);
}

static void
check_files(Doctor *doctor)
{
	StringInfoData errors;
	bool may;

	saved_plan_run_fresh(&may_read_files, NULL, NULL, true);
	may = spi_bool(0, 1);
	SPI_freetuptable(SPI_tuptable);
	if (!may)
		return;

	initStringInfo(&errors);
	saved_plan_run_fresh(&file_errors, NULL, NULL, true);
	for (uint64 i = 0; i < SPI_processed; i++)
		appendStringInfo(&errors, "%s%s", i > 0 ? "; " : "", file_error_text(i));
	SPI_freetuptable(SPI_tuptable);
	doctor_report(doctor, "configuration file", errors.len == 0,
	              errors.len == 0 ? "nothing of ours in it is refused" : errors.data,
	              "Correct the file and call pg_reload_conf(); until then the values of before are in force.");
}

#define NOT_THE_WORKERS                                                                                                \
	"If it was set with ALTER DATABASE, call acemq.worker_restart(); settings of a role or a session are not the "     \
	"worker's."

static void
check_url(Doctor *doctor, bool known, bool set, bool differs)
{
	const char *where = known ? "in the worker" : "in this session";

	if (!set)
		doctor_report(doctor, "broker URL", false,
		              psprintf("acemq.url is empty %s%s", where, differs ? ", but set in this session" : ""),
		              differs ? NOT_THE_WORKERS
		                      : "Set acemq.url with ALTER SYSTEM and reload the configuration, or with ALTER DATABASE "
		                        "and call acemq.worker_restart().");
	else
		doctor_report(
		    doctor, "broker URL", !differs,
		    psprintf("acemq.url is set %s%s", where, differs ? ", to another value than in this session" : ""),
		    NOT_THE_WORKERS);
}

static void
check_relay(Doctor *doctor, bool known, bool on, bool differs)
{
	doctor_report(doctor, "relay on", on && !differs,
	              psprintf("acemq.relay is %s %s%s", on ? "on" : "off", known ? "in the worker" : "in this session",
	                       !differs ? "" : (on ? ", but off in this session" : ", but on in this session")),
	              differs ? NOT_THE_WORKERS
	                      : "Turn acemq.relay on; if it is a setting of the database, call acemq.worker_restart() "
	                        "afterwards.");
}

void
doctor_check_settings(Doctor *doctor)
{
	AcemqSlot *slot = acemq_my_slot();
	uint32 settings = slot && slot->worker_pid != 0 ? pg_atomic_read_u32(&slot->worker_settings) : 0;
	bool known = (settings & ACEMQ_WORKER_READ_SETTINGS) != 0;

	check_files(doctor);
	if (known)
	{
		check_url(doctor, true, (settings & ACEMQ_WORKER_HAS_URL) != 0,
		          pg_atomic_read_u32(&slot->worker_url_hash) != acemq_url_hash());
		check_relay(doctor, true, (settings & ACEMQ_WORKER_RELAY_ON) != 0,
		            ((settings & ACEMQ_WORKER_RELAY_ON) != 0) != acemq_relay);
		return;
	}
	check_url(doctor, false, acemq_url != NULL && acemq_url[0] != '\0', false);
	check_relay(doctor, false, acemq_relay, false);
}
