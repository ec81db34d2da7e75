/*-------------------------------------------------------------------------
 *
 * link.c
 *		A connection of the worker to the broker.
 *
 * A refused TCP connection is tried again within a second: a broker that comes
 * back should be noticed at once, and asking costs nothing.  Attempts that took
 * long (a name that does not resolve, a host that does not answer) and refused
 * logins are tried more rarely, because each one keeps this process busy, or
 * makes the broker suspicious.
 *
 * May depend on: src/amqp/broker.h, src/guc.h, src/shmem.h, src/backoff.h.
 *
 *-------------------------------------------------------------------------
 */
#include "link.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "guc.h"

#define RETRY_FIRST_MS              100
#define RETRY_MAX_MS                800
#define RETRY_AFTER_SLOW_ATTEMPT_MS 5000
#define RETRY_AFTER_REFUSAL_MS      30000
#define SLOW_ATTEMPT_MS             1000
#define LOG_AGAIN_MS                60000

struct Link
{
	LinkRole role;
	MemoryContext context;
	MemoryContext config_context; /* endpoints; reset when acemq.url changes */
	AcemqSlot *slot;
	BrokerEndpoint *endpoints;
	int nendpoints;
	int next_endpoint;
	BrokerConn *conn;
	TimestampTz next_try_at;
	TimestampTz tried_at;
	int failures; /* in a row */
	TimestampTz logged_at;
	char *configured; /* what the connection depends on, as one string */
};

static void read_endpoints(Link *link);
static void show_problem(Link *link, AcemqConnectProblem problem, const char *text);
static char *connection_settings(void);
static bool read_password_file(char *buffer, Size size, BrokerError *error);
static void fill_options(BrokerOptions *options, const char *connection_name);
static void note_failure(Link *link, const BrokerError *error, int64 took_ms);
static void note_connected(Link *link, const BrokerEndpoint *endpoint);

void
link_process_init(void)
{
	broker_process_init();
}

void
link_kick(void)
{
	broker_kick();
}

Link *
link_create(MemoryContext parent, AcemqSlot *slot, LinkRole role)
{
	Link *link = MemoryContextAllocZero(parent, sizeof(Link));

	link->context = AllocSetContextCreate(parent, "acemq link", ALLOCSET_DEFAULT_SIZES);
	link->config_context = AllocSetContextCreate(link->context, "acemq endpoints", ALLOCSET_SMALL_SIZES);
	link->slot = slot;
	link->role = role;
	read_endpoints(link);
	return link;
}

static const char *
whose(Link *link)
{
	return link->role == LINK_RELAY ? "relay" : "scheduler";
}

/* The relay's messages say nothing of whose they are: it is what the worker is for. */
static const char *
log_prefix(Link *link)
{
	return link->role == LINK_RELAY ? "" : "scheduler: ";
}

void
link_require_no_transaction(const char *what)
{
	if (IsTransactionState())
		elog(ERROR, "acemq: %s inside a transaction", what);
}

static void
read_endpoints(Link *link)
{
	MemoryContext caller;
	const char *problem = NULL;

	MemoryContextReset(link->config_context);
	caller = MemoryContextSwitchTo(link->config_context);
	link->nendpoints = broker_url_parse(acemq_url ? acemq_url : "", &link->endpoints, &problem);
	link->configured = connection_settings();
	MemoryContextSwitchTo(caller);

	link->next_endpoint = 0;
	link->next_try_at = 0;
	link->failures = 0;
	link->logged_at = 0;
	show_problem(link, ACEMQ_CONNECT_FINE, NULL);
	if (link->nendpoints < 0)
	{
		link->nendpoints = 0;
		show_problem(link, ACEMQ_CONNECT_MISCONFIGURED, psprintf("acemq.url: %s", problem));
	}
	if (link->nendpoints == 0 && link->role == LINK_RELAY)
		acemq_slot_set_broker(link->slot, "");
}

/* Without a text the last one stays, with the time it is from. */
static void
show_problem(Link *link, AcemqConnectProblem problem, const char *text)
{
	if (link->role == LINK_SCHEDULER)
	{
		if (text)
			acemq_slot_set_scheduler_problem(link->slot, text);
		return;
	}
	if (text)
		acemq_slot_set_connection_error(link->slot, text);
	pg_atomic_write_u32(&link->slot->connect_problem, problem);
}

bool
link_has_endpoint(Link *link)
{
	return link->nendpoints > 0;
}

/* Everything a new connection would be made differently for. */
static char *
connection_settings(void)
{
	return psprintf("%s|%s|%s|%s|%s|%d|%d", acemq_url ? acemq_url : "", acemq_password_file ? acemq_password_file : "",
	                acemq_tls_ca_file ? acemq_tls_ca_file : "", acemq_tls_cert_file ? acemq_tls_cert_file : "",
	                acemq_tls_key_file ? acemq_tls_key_file : "", acemq_tls_verify, acemq_heartbeat);
}

bool
link_settings_changed(Link *link)
{
	char *now_configured = connection_settings();
	bool changed = strcmp(now_configured, link->configured) != 0;

	explicit_bzero(now_configured, strlen(now_configured));
	pfree(now_configured);
	return changed;
}

/* Without a connection the next attempt is made at once: somebody has just mended something. */
void
link_reread_settings(Link *link)
{
	if (link_settings_changed(link))
		read_endpoints(link);
	else if (link->conn == NULL)
		link->next_try_at = 0;
}

/* From the first endpoint's turn on: a list of several is tried once through before a refusal counts. */
void
link_try_now(Link *link)
{
	if (link->conn != NULL)
		return;
	link->next_try_at = Min(link->next_try_at, link->tried_at + RETRY_MAX_MS * INT64CONST(1000));
	link->failures = 0;
}

BrokerConn *
link_conn(Link *link)
{
	return link->conn;
}

TimestampTz
link_next_try_at(Link *link)
{
	if (link->conn || link->nendpoints == 0)
		return 0;
	return Max(link->next_try_at, 1);
}

bool
link_ensure(Link *link, TimestampTz now)
{
	BrokerEndpoint endpoint;
	BrokerOptions options;
	BrokerError error = {0};
	char password[1024];
	char name[NAMEDATALEN + 64];
	TimestampTz started;

	if (link->conn)
		return true;
	if (link->nendpoints == 0 || now < link->next_try_at)
		return false;

	link_require_no_transaction("connecting to the broker");
	endpoint = link->endpoints[link->next_endpoint];
	link->next_endpoint = (link->next_endpoint + 1) % link->nendpoints;
	started = link->tried_at = GetCurrentTimestamp();

	if (acemq_password_file && acemq_password_file[0] != '\0')
	{
		if (!read_password_file(password, sizeof(password), &error))
		{
			note_failure(link, &error, 0);
			return false;
		}
		endpoint.password = password;
	}

	snprintf(name, sizeof(name), "acemq %s, database %u", whose(link), MyDatabaseId);
	fill_options(&options, name);
	link->conn = broker_connect(link->context, &endpoint, &options, &error);
	explicit_bzero(password, sizeof(password));
	if (link->conn && broker_open_channel(link->conn, BROKER_CHANNEL_MAIN))
	{
		note_connected(link, &endpoint);
		return true;
	}

	if (link->conn)
	{
		error.kind = BROKER_UNREACHABLE;
		strlcpy(error.text, broker_lost_reason(link->conn), sizeof(error.text));
		broker_disconnect(link->conn, false);
		link->conn = NULL;
	}
	note_failure(link, &error, (GetCurrentTimestamp() - started) / 1000);
	return false;
}

static void
fill_options(BrokerOptions *options, const char *connection_name)
{
	memset(options, 0, sizeof(*options));
	options->io_timeout_ms = acemq_io_timeout;
	options->connect_timeout_ms = acemq_connect_timeout;
	options->heartbeat_s = acemq_heartbeat;
	options->tls_ca_file = acemq_tls_ca_file;
	options->tls_cert_file = acemq_tls_cert_file;
	options->tls_key_file = acemq_tls_key_file;
	options->tls_verify_peer = acemq_tls_verify != ACEMQ_TLS_VERIFY_NONE;
	options->tls_verify_host = acemq_tls_verify == ACEMQ_TLS_VERIFY_FULL;
	options->connection_name = connection_name;
}

/* First line of the file.  A file that others can read is refused, as libpq refuses such a .pgpass. */
static bool
read_password_file(char *buffer, Size size, BrokerError *error)
{
	struct stat st;
	FILE *file;
	bool got;

	error->kind = BROKER_MISCONFIGURED;
	file = AllocateFile(acemq_password_file, "r");
	if (file == NULL || fstat(fileno(file), &st) != 0)
	{
		snprintf(error->text, sizeof(error->text), "could not read acemq.password_file: %s: \"%s\"", strerror(errno),
		         acemq_password_file);
		if (file)
			FreeFile(file);
		return false;
	}
	if (!S_ISREG(st.st_mode) || (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
	{
		snprintf(error->text, sizeof(error->text),
		         "acemq.password_file must be a regular file that only its owner can read (mode 0600): \"%s\"",
		         acemq_password_file);
		FreeFile(file);
		return false;
	}
	got = fgets(buffer, (int) size, file) != NULL;
	FreeFile(file);
	if (!got)
	{
		snprintf(error->text, sizeof(error->text), "acemq.password_file is empty: \"%s\"", acemq_password_file);
		return false;
	}
	buffer[strcspn(buffer, "\r\n")] = '\0';
	return true;
}

static AcemqConnectProblem
connect_problem(const BrokerError *error)
{
	switch (error->kind)
	{
		case BROKER_LOGIN_REFUSED:
			return ACEMQ_CONNECT_LOGIN_REFUSED;
		case BROKER_MISCONFIGURED:
			return ACEMQ_CONNECT_MISCONFIGURED;
		case BROKER_UNREACHABLE:
			break;
	}
	return ACEMQ_CONNECT_UNREACHABLE;
}

static void
note_failure(Link *link, const BrokerError *error, int64 took_ms)
{
	TimestampTz now = GetCurrentTimestamp();
	int64 delay_ms;

	link->failures++;
	if (error->kind != BROKER_UNREACHABLE)
		delay_ms = RETRY_AFTER_REFUSAL_MS;
	else if (took_ms >= SLOW_ATTEMPT_MS)
		delay_ms = RETRY_AFTER_SLOW_ATTEMPT_MS;
	else
		delay_ms = backoff_jitter_ms(backoff_delay_ms(Min(link->failures, 10), RETRY_FIRST_MS, RETRY_MAX_MS));

	/* The other endpoints of the list get their turn before anybody waits long. */
	if (link->failures < link->nendpoints)
		delay_ms = Min(delay_ms, RETRY_FIRST_MS);
	link->next_try_at = now + delay_ms * 1000;

	/* Text first: whoever sees the counter grow shows it. */
	show_problem(link, connect_problem(error), error->text);
	if (error->kind == BROKER_LOGIN_REFUSED && link->failures >= link->nendpoints && link->role == LINK_RELAY)
		pg_atomic_fetch_add_u64(&link->slot->login_refused, 1);
	ConditionVariableBroadcast(&link->slot->progress);
	if (link->logged_at == 0 || now - link->logged_at >= LOG_AGAIN_MS * INT64CONST(1000))
	{
		ereport(LOG, (errmsg("acemq: %s%s", log_prefix(link), error->text)));
		link->logged_at = now;
	}
}

static void
note_connected(Link *link, const BrokerEndpoint *endpoint)
{
	char *where = broker_endpoint_text(endpoint);
	char *text = psprintf("%s (%s)", where, broker_server_text(link->conn));

	if (acemq_tls_verify == ACEMQ_TLS_VERIFY_NONE && endpoint->tls)
		ereport(WARNING, (errmsg("acemq: the certificate of %s is not verified", where),
		                  errhint("Set acemq.tls_verify to \"full\".")));
	ereport(LOG, (errmsg("acemq: %sconnected to %s", log_prefix(link), text)));
	if (link->role == LINK_RELAY)
	{
		acemq_slot_set_broker(link->slot, text);
		pg_atomic_fetch_add_u64(&link->slot->reconnects, 1);
	}
	show_problem(link, ACEMQ_CONNECT_FINE, NULL);
	link->failures = 0;
	link->logged_at = 0;
	/* The endpoint that works is tried first when the connection is lost. */
	link->next_endpoint = (link->next_endpoint + link->nendpoints - 1) % link->nendpoints;
	pfree(text);
	pfree(where);
}

void
link_drop(Link *link, const char *reason, bool politely)
{
	if (link->conn == NULL)
		return;
	link_require_no_transaction("disconnecting from the broker");
	if (reason)
	{
		ereport(LOG, (errmsg("acemq: %sconnection to the broker given up: %s", log_prefix(link), reason)));
		if (link->role == LINK_RELAY)
			acemq_slot_set_connection_error(link->slot, reason);
		else
			acemq_slot_set_scheduler_problem(link->slot, reason);
	}
	broker_disconnect(link->conn, politely);
	link->conn = NULL;
	link->next_try_at = 0;
	link->failures = 0;
}

void
link_pump(Link *link)
{
	link_require_no_transaction("reading from the broker");
	broker_pump(link->conn);
}

bool
link_open_channel(Link *link, int channel)
{
	link_require_no_transaction("opening a channel");
	return broker_open_channel(link->conn, channel);
}

BrokerPublish
link_publish(Link *link, int channel, const BrokerMessage *message, uint64 token, BrokerError *error)
{
	link_require_no_transaction("publishing");
	return broker_publish(link->conn, channel, message, token, error);
}
