/*-------------------------------------------------------------------------
 *
 * guc.c
 *		Every setting of the extension, in tables.
 *
 * What the worker uses is PGC_SUSET and not PGC_SIGHUP, so that ALTER DATABASE
 * can give each database its own broker.  A reload is enough for what stands
 * in the configuration file; a worker reads what ALTER DATABASE says when it
 * starts (acemq.worker_restart()).  Limits on rows are PGC_SUSET as well: a
 * session must not lift them for itself.  The session's own are acemq.origin,
 * acemq.owner and the defaults of arguments (acemq.idempotency_*).
 *
 * May depend on: broker_url.h, utf8.h.
 *
 *-------------------------------------------------------------------------
 */
#include "guc.h"

#include "broker_url.h"
#include "utf8.h"

#include <limits.h>
#include <unistd.h>

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/guc.h"

char *acemq_url = "";
char *acemq_password_file = "";
char *acemq_tls_ca_file = "";
char *acemq_tls_cert_file = "";
char *acemq_tls_key_file = "";
int acemq_tls_verify = ACEMQ_TLS_VERIFY_FULL;
int acemq_io_timeout = 5000;
int acemq_connect_timeout = 5000;
int acemq_heartbeat = 10;
int acemq_max_in_flight = 1000;
int acemq_max_in_flight_bytes = 8192;
int acemq_confirm_timeout = 30000;
int acemq_poll_interval = 1000;
int acemq_max_attempts = 10;
int acemq_retry_delay = 1000;
int acemq_retry_delay_max = 300000;
int acemq_outbox_retention = 0;
int acemq_max_body_size = 15360;
int acemq_max_headers_size = 64;
int acemq_idempotency_lease = 300000;
int acemq_idempotency_retention = 86400;
int acemq_claim_check_threshold = -1;
char *acemq_origin = "";
char *acemq_owner = "";
bool acemq_relay = true;
bool acemq_scheduler = true;
int acemq_max_databases = 16;
#ifdef ACEMQ_KILL_POINTS
char *acemq_kill_point = "";
#endif

#define MS_PER_DAY      (24 * 3600 * 1000)
#define S_PER_TEN_YEARS (10 * 366 * 24 * 3600)

typedef struct IntSetting
{
	const char *name;
	int *variable;
	int min;
	int max;
	int unit;
	GucContext context;
	const char *description;
} IntSetting;

static const IntSetting int_settings[] = {
    {"acemq.io_timeout", &acemq_io_timeout, 1000, 60000, GUC_UNIT_MS, PGC_SUSET,
     "Longest time one exchange with the broker may take."},
    {"acemq.connect_timeout", &acemq_connect_timeout, 1000, 60000, GUC_UNIT_MS, PGC_SUSET,
     "Longest time one step of connecting to the broker may take."},
    {"acemq.heartbeat", &acemq_heartbeat, 1, 600, GUC_UNIT_S, PGC_SUSET,
     "Interval of heartbeats on the connection to the broker."},
    {"acemq.max_in_flight", &acemq_max_in_flight, 1, ACEMQ_MAX_IN_FLIGHT, 0, PGC_SUSET,
     "Most messages sent and not yet confirmed."},
    {"acemq.max_in_flight_bytes", &acemq_max_in_flight_bytes, 64, 1024 * 1024, GUC_UNIT_KB, PGC_SUSET,
     "Most bytes of messages in the worker's memory, sent or waiting to be sent."},
    {"acemq.confirm_timeout", &acemq_confirm_timeout, 1000, 3600 * 1000, GUC_UNIT_MS, PGC_SUSET,
     "Time after which a missing confirm means that the connection is lost."},
    {"acemq.poll_interval", &acemq_poll_interval, 100, 60000, GUC_UNIT_MS, PGC_SUSET,
     "Time between looks at the outbox when nothing wakes the worker."},
    {"acemq.max_attempts", &acemq_max_attempts, 1, 1000000, 0, PGC_SUSET,
     "Failed attempts after which a message is retired."},
    {"acemq.retry_delay", &acemq_retry_delay, 1, MS_PER_DAY, GUC_UNIT_MS, PGC_SUSET,
     "Delay after the first failed attempt; it doubles with each further one."},
    {"acemq.retry_delay_max", &acemq_retry_delay_max, 1, MS_PER_DAY, GUC_UNIT_MS, PGC_SUSET,
     "Longest delay between two attempts."},
    {"acemq.outbox_retention", &acemq_outbox_retention, 0, S_PER_TEN_YEARS, GUC_UNIT_S, PGC_SUSET,
     "How long published messages are kept; 0 deletes them when they are confirmed."},
    {"acemq.max_body_size", &acemq_max_body_size, 1, ACEMQ_BODY_SIZE_LIMIT / 1024, GUC_UNIT_KB, PGC_SUSET,
     "Largest body outbox_add() accepts."},
    /* The envelope's own headers and the properties have to fit into the same frame of 128 kB. */
    {"acemq.max_headers_size", &acemq_max_headers_size, 1, 112, GUC_UNIT_KB, PGC_SUSET,
     "Largest headers outbox_add() accepts."},
    {"acemq.idempotency_lease", &acemq_idempotency_lease, 1, 24 * MS_PER_DAY, GUC_UNIT_MS, PGC_USERSET,
     "How long a claim of the idempotency store holds if its caller does not say."},
    {"acemq.idempotency_retention", &acemq_idempotency_retention, 1, S_PER_TEN_YEARS, GUC_UNIT_S, PGC_USERSET,
     "How long a confirmation of the idempotency store holds if its caller does not say."},
    /* A body that is checked in may be over acemq.max_body_size, so this is no session's own choice. */
    {"acemq.claim_check_threshold", &acemq_claim_check_threshold, -1, 1024 * 1024 * 1024, GUC_UNIT_BYTE, PGC_SUSET,
     "Size from which outbox_add() keeps a body in the claim-check store; -1 never."},
};

typedef struct FileSetting
{
	const char *name;
	const char *description;
	char **variable;
} FileSetting;

static const FileSetting file_settings[] = {
    {"acemq.password_file", "File with the password for the broker, read at every connect.", &acemq_password_file},
    {"acemq.tls_ca_file", "File with the certificates of trusted authorities; empty: the system's.",
     &acemq_tls_ca_file},
    {"acemq.tls_cert_file", "File with the certificate shown to the broker.", &acemq_tls_cert_file},
    {"acemq.tls_key_file", "File with the private key of acemq.tls_cert_file.", &acemq_tls_key_file},
};

static const struct config_enum_entry tls_verify_options[] = {{"full", ACEMQ_TLS_VERIFY_FULL, false},
                                                              {"ca", ACEMQ_TLS_VERIFY_CA, false},
                                                              {"none", ACEMQ_TLS_VERIFY_NONE, false},
                                                              {NULL, 0, false}};

/* What acemq_origin_text() answers, as long as the setting does not change. */
static char origin_text[ACEMQ_MAX_SHORTSTR + 1];
static bool origin_text_valid = false;

static void define_broker_settings(void);
static bool check_url(char **newval, void **extra, GucSource source);
static bool is_kept_in_catalog(GucSource source);
static const char *show_url(void);
static bool check_origin(char **newval, void **extra, GucSource source);
static bool check_owner(char **newval, void **extra, GucSource source);
static void assign_origin(const char *newval, void *extra);
static void set_default_origin(void);

void
acemq_guc_init(bool preloading)
{
	define_broker_settings();

	for (int i = 0; i < lengthof(int_settings); i++)
	{
		const IntSetting *s = &int_settings[i];

		DefineCustomIntVariable(s->name, s->description, NULL, s->variable, *s->variable, s->min, s->max, s->context,
		                        s->unit, NULL, NULL, NULL);
	}

	DefineCustomStringVariable("acemq.origin", "What x-acemq-origin says of messages added by this session.",
	                           "Empty: acemq@<host name>.", &acemq_origin, "", PGC_USERSET, 0, check_origin,
	                           assign_origin, NULL);
	DefineCustomStringVariable("acemq.owner", "Who claims keys of the idempotency store in this session.",
	                           "Empty: a random UUID of the session.", &acemq_owner, "", PGC_USERSET, 0, check_owner,
	                           NULL, NULL);
	DefineCustomBoolVariable("acemq.relay", "Whether this database's worker relays.", NULL, &acemq_relay, true,
	                         PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("acemq.scheduler",
	                         "Whether this database's worker serves the ladder of scheduled messages.", NULL,
	                         &acemq_scheduler, true, PGC_SUSET, 0, NULL, NULL, NULL);

#ifdef ACEMQ_KILL_POINTS
	DefineCustomStringVariable("acemq.kill_point", "Step at which a worker dies (bgworker/kill_points.h).", NULL,
	                           &acemq_kill_point, "", PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
#endif

	if (preloading)
		DefineCustomIntVariable("acemq.max_databases", "Most databases of this server that are served.",
		                        "Each takes one of max_worker_processes.", &acemq_max_databases, 16, 1, 64,
		                        PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

/*
 * Where the broker is and what we trust: for superusers' eyes.  A role may be
 * allowed to read all settings without being one, so what SHOW says of the
 * URL has no password either, and pg_settings, which has the raw value in
 * reset_val, does not list it at all.
 */
static void
define_broker_settings(void)
{
	DefineCustomStringVariable("acemq.url", "Where the broker is: amqp:// or amqps:// URLs, separated by commas.",
	                           "Empty: nothing is relayed.  Shown without passwords.", &acemq_url, "", PGC_SUSET,
	                           GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, check_url, NULL, show_url);

	for (int i = 0; i < lengthof(file_settings); i++)
	{
		const FileSetting *s = &file_settings[i];

		DefineCustomStringVariable(s->name, s->description, NULL, s->variable, "", PGC_SUSET, GUC_SUPERUSER_ONLY, NULL,
		                           NULL, NULL);
	}

	DefineCustomEnumVariable("acemq.tls_verify", "How much of the broker's certificate is verified.",
	                         "full: authority and host name; ca: authority only; none: nothing.", &acemq_tls_verify,
	                         ACEMQ_TLS_VERIFY_FULL, tls_verify_options, PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL,
	                         NULL);
}

/*
 * Sets a message of its own in every case: the default one repeats the value,
 * and with it a password.
 */
static bool
check_url(char **newval, void **extra, GucSource source)
{
	BrokerEndpoint *endpoints;
	const char *problem;

	if (is_kept_in_catalog(source) && broker_url_has_password(*newval))
	{
		GUC_check_errcode(ERRCODE_INVALID_PARAMETER_VALUE);
		GUC_check_errmsg("a password in \"acemq.url\" cannot be kept in the catalogs");
		GUC_check_errdetail("Settings of databases, roles and functions can be read by everybody.");
		GUC_check_errhint("Leave the password out of the URL and set \"acemq.password_file\".");
		return false;
	}

	if (broker_url_parse(*newval, &endpoints, &problem) < 0)
	{
		GUC_check_errcode(ERRCODE_INVALID_PARAMETER_VALUE);
		GUC_check_errmsg("invalid value for parameter \"acemq.url\"");
		GUC_check_errdetail("The URL cannot be used: %s.", problem);
		GUC_check_errhint("A URL is amqp://user@host[:port][/vhost], or amqps://...");
		return false;
	}
	return true;
}

/* PGC_S_TEST is ALTER DATABASE, ALTER ROLE and CREATE FUNCTION ... SET trying a value before they store it. */
static bool
is_kept_in_catalog(GucSource source)
{
	switch (source)
	{
		case PGC_S_GLOBAL:
		case PGC_S_DATABASE:
		case PGC_S_USER:
		case PGC_S_DATABASE_USER:
		case PGC_S_TEST:
			return true;
		default:
			return false;
	}
}

static const char *
show_url(void)
{
	BrokerEndpoint *endpoints;
	const char *problem;
	int count = broker_url_parse(acemq_url, &endpoints, &problem);
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < count; i++)
		appendStringInfo(&text, "%s%s", i > 0 ? "," : "", broker_endpoint_text(&endpoints[i]));
	return text.data;
}

static bool
check_origin(char **newval, void **extra, GucSource source)
{
	if (strlen(*newval) <= ACEMQ_MAX_SHORTSTR)
		return true;
	GUC_check_errdetail("\"acemq.origin\" must not be longer than %d bytes.", ACEMQ_MAX_SHORTSTR);
	return false;
}

/* Characters, as the column counts them. */
static bool
check_owner(char **newval, void **extra, GucSource source)
{
	if (pg_mbstrlen(*newval) <= ACEMQ_MAX_OWNER)
		return true;
	GUC_check_errdetail("\"acemq.owner\" must not be longer than %d characters.", ACEMQ_MAX_OWNER);
	return false;
}

static void
assign_origin(const char *newval, void *extra)
{
	origin_text_valid = false;
}

/*
 * The UTF-8 form of a text in another encoding may be longer than what the
 * check hook measured; it is cut then, because this is no place to fail.
 */
const char *
acemq_origin_text(void)
{
	const char *utf8;
	int len;

	if (origin_text_valid)
		return origin_text;

	if (acemq_origin[0] == '\0')
		set_default_origin();
	else
	{
		utf8 = utf8_from_server(acemq_origin, strlen(acemq_origin), &len, "acemq.origin");
		/* Nobody has verified the bytes of a configuration file. */
		(void) pg_verify_mbstr(PG_UTF8, utf8, len, false);
		len = pg_encoding_mbcliplen(PG_UTF8, utf8, len, ACEMQ_MAX_SHORTSTR);
		memcpy(origin_text, utf8, len);
		origin_text[len] = '\0';
	}
	origin_text_valid = true;
	return origin_text;
}

static void
set_default_origin(void)
{
	char host[HOST_NAME_MAX + 1] = "localhost";

	/* A name that does not fit is not terminated. */
	(void) gethostname(host, sizeof(host) - 1);
	host[sizeof(host) - 1] = '\0';
	snprintf(origin_text, sizeof(origin_text), "acemq@%s", host);
}
