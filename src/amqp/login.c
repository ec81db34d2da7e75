/*
 * login.c
 *		The AMQP part of connecting: who we are, what we can do, what went wrong.
 *
 * May depend on: conn_internal.h, text.h.
 */
#include "conn_internal.h"

#include "text.h"

/* "PRECONDITION_FAILED - ..." and the like come with these. */
#define CODE_ACCESS_REFUSED 403
#define CODE_NOT_ALLOWED    530

static amqp_table_entry_t
text_entry(const char *name, const char *value)
{
	amqp_table_entry_t entry;

	entry.key = amqp_cstring_bytes(name);
	entry.value.kind = AMQP_FIELD_KIND_UTF8;
	entry.value.value.bytes = amqp_cstring_bytes(value);
	return entry;
}

static amqp_table_entry_t
capability(const char *name)
{
	amqp_table_entry_t entry;

	entry.key = amqp_cstring_bytes(name);
	entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
	entry.value.value.boolean = 1;
	return entry;
}

/* The library merges these with its own. */
static amqp_rpc_reply_t
send_login(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options)
{
	amqp_table_entry_t capabilities[] = {
	    capability("connection.blocked"), capability("consumer_cancel_notify"),       capability("publisher_confirms"),
	    capability("basic.nack"),         capability("authentication_failure_close"),
	};
	amqp_table_entry_t properties[] = {
	    text_entry("product", "AceMQ for PostgreSQL"),
	    text_entry("version", ACEMQ_VERSION),
	    text_entry("connection_name", options->connection_name != NULL ? options->connection_name : "acemq"),
	    {.key = amqp_cstring_bytes("capabilities"), .value.kind = AMQP_FIELD_KIND_TABLE},
	};
	amqp_table_t table = {lengthof(properties), properties};

	properties[lengthof(properties) - 1].value.value.table.num_entries = lengthof(capabilities);
	properties[lengthof(properties) - 1].value.value.table.entries = capabilities;

	/* No password but a certificate: that is what the broker is to know us by. */
	if (endpoint->password == NULL && endpoint->tls && options->tls_cert_file != NULL &&
	    options->tls_cert_file[0] != '\0')
		return amqp_login_with_properties(conn->rabbit, endpoint->vhost, BROKER_MAX_CHANNEL, RABBIT_FRAME_MAX,
		                                  options->heartbeat_s, &table, AMQP_SASL_METHOD_EXTERNAL, endpoint->user);
	return amqp_login_with_properties(conn->rabbit, endpoint->vhost, BROKER_MAX_CHANNEL, RABBIT_FRAME_MAX,
	                                  options->heartbeat_s, &table, AMQP_SASL_METHOD_PLAIN, endpoint->user,
	                                  endpoint->password != NULL ? endpoint->password : "");
}

/* The broker said no and why. */
static bool
refused_by_broker(const BrokerEndpoint *endpoint, const amqp_method_t *method, BrokerError *error)
{
	const amqp_connection_close_t *close = method->decoded;
	char words[ACEMQ_MAX_SHORTSTR + 1];
	bool is_login;

	if (method->id != AMQP_CONNECTION_CLOSE_METHOD)
		return broker_fail(error, BROKER_UNREACHABLE, "could not log in to %s: unexpected answer",
		                   broker_endpoint_text(endpoint));
	text_clean(words, sizeof(words), close->reply_text.bytes, close->reply_text.len);
	is_login = close->reply_code == CODE_ACCESS_REFUSED || close->reply_code == CODE_NOT_ALLOWED;
	return broker_fail(error, is_login ? BROKER_LOGIN_REFUSED : BROKER_UNREACHABLE, "could not log in to %s: %d %s",
	                   broker_endpoint_text(endpoint), (int) close->reply_code, words);
}

static void
describe_server(BrokerConn *conn)
{
	const amqp_table_t *table = amqp_get_server_properties(conn->rabbit);
	char product[64] = "unknown broker";
	char version[32] = "";

	for (int i = 0; i < table->num_entries; i++)
	{
		const amqp_table_entry_t *entry = &table->entries[i];
		amqp_bytes_t value = entry->value.value.bytes;

		if (entry->value.kind != AMQP_FIELD_KIND_UTF8)
			continue;
		if (entry->key.len == 7 && memcmp(entry->key.bytes, "product", 7) == 0)
			text_clean(product, sizeof(product), value.bytes, value.len);
		else if (entry->key.len == 7 && memcmp(entry->key.bytes, "version", 7) == 0)
			text_clean(version, sizeof(version), value.bytes, value.len);
	}
	snprintf(conn->server_text, sizeof(conn->server_text), "%s%s%s", product, version[0] != '\0' ? " " : "", version);
}

/* A broker would close the connection at the first channel too many, in the middle of work, again and again. */
static bool
has_channels_enough(BrokerConn *conn, const BrokerEndpoint *endpoint, BrokerError *error)
{
	int channels = amqp_get_channel_max(conn->rabbit);

	if (channels == 0 || channels >= BROKER_MAX_CHANNEL)
		return true;
	return broker_fail(error, BROKER_MISCONFIGURED,
	                   "%s allows a connection no more than %d of the %d channels it needs (channel_max)",
	                   broker_endpoint_text(endpoint), channels, BROKER_MAX_CHANNEL);
}

static void
set_timeouts(BrokerConn *conn, const BrokerOptions *options)
{
	struct timeval handshake = {options->connect_timeout_ms / 1000, (options->connect_timeout_ms % 1000) * 1000};
	struct timeval rpc = {options->io_timeout_ms / 1000, (options->io_timeout_ms % 1000) * 1000};

	(void) amqp_set_handshake_timeout(conn->rabbit, &handshake);
	(void) amqp_set_rpc_timeout(conn->rabbit, &rpc);
}

bool
broker_login(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	amqp_rpc_reply_t reply;
	GuardOutcome outcome;
	char what[ACEMQ_ERROR_TEXT];
	char text[ACEMQ_ERROR_TEXT];

	set_timeouts(conn, options);
	guard_begin(broker_socket(conn), options->connect_timeout_ms);
	reply = send_login(conn, endpoint, options);
	outcome = guard_end();

	if (outcome == GUARD_QUIET && reply.reply_type == AMQP_RESPONSE_NORMAL)
	{
		describe_server(conn);
		return has_channels_enough(conn, endpoint, error);
	}
	if (outcome == GUARD_QUIET && reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION)
		return refused_by_broker(endpoint, &reply.reply, error);
	if (outcome == GUARD_QUIET && reply.library_error == AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD)
		return broker_fail(error, BROKER_LOGIN_REFUSED,
		                   "could not log in to %s: the broker does not offer this way of logging in",
		                   broker_endpoint_text(endpoint));

	snprintf(what, sizeof(what), "log in to %s", broker_endpoint_text(endpoint));
	conn_describe_failure(text, sizeof(text), reply.library_error, outcome, what, options->connect_timeout_ms);
	return broker_fail(error, BROKER_UNREACHABLE, "%s", text);
}
