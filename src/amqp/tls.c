/*
 * tls.c
 *		Connecting with TLS: whom we trust, who we are, and the reason in words
 *		when the broker is not to be trusted.
 *
 * The library opens the socket itself here.  What it checks differs between
 * its versions (0.11 knows host names only, no addresses, and tells no
 * reasons), so verification is OpenSSL's own, with a callback that remembers
 * what was wrong.
 *
 * May depend on: conn_internal.h, OpenSSL.
 */
#include "conn_internal.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

/*
 * Certificates that the AceMQ libraries generate for tests carry this in
 * their subject.  Their keys are public: never to be trusted, in any mode.
 */
static const char development_marker[] = "ACEMQ DEVELOPMENT ONLY - DO NOT TRUST";

/* What the verification callback needs and finds; hangs off the SSL_CTX. */
typedef struct TlsVerdict
{
	bool verify;      /* else everything but a development certificate passes */
	int code;         /* X509_V_ERR_..., the first failure */
	bool development; /* a development certificate was presented */
} TlsVerdict;

const char *
broker_tls_reason(void)
{
	/* The first is the cause, those behind it say who stumbled over it. */
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason != NULL ? reason : "";
}

/* The text is looked for in the encoded certificate: no field, encoding or nesting hides it. */
static bool
is_development_certificate(X509 *certificate)
{
	unsigned char *der = NULL;
	int len = i2d_X509(certificate, &der);
	bool found;

	if (len <= 0)
		return false;
	found = memmem(der, len, development_marker, sizeof(development_marker) - 1) != NULL;
	OPENSSL_free(der);
	return found;
}

static bool
any_development_certificate(const STACK_OF(X509) * certificates)
{
	for (int i = 0; i < sk_X509_num(certificates); i++)
	{
		if (is_development_certificate(sk_X509_value(certificates, i)))
			return true;
	}
	return false;
}

/* Called by OpenSSL for every certificate of the chain and every problem with one. */
static int
verify_certificate(int ok, X509_STORE_CTX *store)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	TlsVerdict *verdict = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	X509 *current = X509_STORE_CTX_get_current_cert(store);

	if ((current != NULL && is_development_certificate(current)) ||
	    any_development_certificate(X509_STORE_CTX_get0_untrusted(store)))
	{
		verdict->development = true;
		X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
		return 0;
	}
	if (ok)
		return 1;
	if (!verdict->verify)
	{
		X509_STORE_CTX_set_error(store, X509_V_OK);
		return 1;
	}
	if (verdict->code == X509_V_OK)
		verdict->code = X509_STORE_CTX_get_error(store);
	return 0;
}

/* An encrypted key must not make OpenSSL ask at a terminal. */
static int
no_passphrase(char *buffer, int size, int for_writing, void *arg)
{
	return 0;
}

/*
 * The handshake begins: if the guard fired while the library was still
 * connecting, there was no socket yet that could have been shut down.
 */
static void
handshake_progress(const SSL *ssl, int where, int value)
{
	guard_repeat();
}

/* OpenSSL would say "system lib". */
static bool
is_readable(const char *file, BrokerError *error)
{
	if (access(file, R_OK) == 0)
		return true;
	return broker_fail(error, BROKER_MISCONFIGURED, "could not read file \"%s\": %s", file, strerror(errno));
}

static bool
trust_authorities(SSL_CTX *context, const BrokerOptions *options, BrokerError *error)
{
	const char *file = options->tls_ca_file;
	STACK_OF(X509_OBJECT) * objects;

	if (file == NULL || file[0] == '\0')
	{
		if (SSL_CTX_set_default_verify_paths(context) == 1)
			return true;
		return broker_fail(error, BROKER_MISCONFIGURED, "could not load the system's certificate authorities: %s",
		                   broker_tls_reason());
	}

	if (!is_readable(file, error))
		return false;
	if (SSL_CTX_load_verify_locations(context, file, NULL) != 1)
		return broker_fail(error, BROKER_MISCONFIGURED, "could not load certificate authorities from \"%s\": %s", file,
		                   broker_tls_reason());

	objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
	for (int i = 0; i < sk_X509_OBJECT_num(objects); i++)
	{
		X509 *certificate = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));

		if (certificate != NULL && is_development_certificate(certificate))
			return broker_fail(error, BROKER_MISCONFIGURED, "file \"%s\" holds a development certificate", file);
	}
	return true;
}

static bool
present_certificate(SSL_CTX *context, const BrokerOptions *options, BrokerError *error)
{
	const char *certificate = options->tls_cert_file;
	const char *key = options->tls_key_file;
	bool has_certificate = certificate != NULL && certificate[0] != '\0';
	bool has_key = key != NULL && key[0] != '\0';
	STACK_OF(X509) *chain = NULL;

	if (!has_certificate && !has_key)
		return true;
	if (!has_certificate || !has_key)
		return broker_fail(error, BROKER_MISCONFIGURED, "a client certificate and its key go together, one is missing");

	if (!is_readable(certificate, error) || !is_readable(key, error))
		return false;
	if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
		return broker_fail(error, BROKER_MISCONFIGURED, "could not load client certificate \"%s\": %s", certificate,
		                   broker_tls_reason());
	SSL_CTX_get0_chain_certs(context, &chain);
	if (is_development_certificate(SSL_CTX_get0_certificate(context)) || any_development_certificate(chain))
		return broker_fail(error, BROKER_MISCONFIGURED, "file \"%s\" holds a development certificate", certificate);

	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
		return broker_fail(error, BROKER_MISCONFIGURED, "could not use client key \"%s\": %s", key,
		                   broker_tls_reason());
	return true;
}

/* Which name the broker's certificate has to be for. */
static bool
expect_name(SSL_CTX *context, const char *host)
{
	X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
	unsigned char address[sizeof(struct in6_addr)];

	if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return X509_VERIFY_PARAM_set1_host(param, host, strlen(host)) == 1;
}

static bool
configure(SSL_CTX *context, TlsVerdict *verdict, const char *host, const BrokerOptions *options, BrokerError *error)
{
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_app_data(context, verdict);
	SSL_CTX_set_info_callback(context, handshake_progress);

	/* Also if nothing is to be verified: the callback looks for development certificates. */
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, verify_certificate);
	verdict->verify = options->tls_verify_peer;
	if (options->tls_verify_peer && options->tls_verify_host && !expect_name(context, host))
		return broker_fail(error, BROKER_MISCONFIGURED,
		                   "a certificate cannot be checked against the host name of the URL");
	return trust_authorities(context, options, error) && present_certificate(context, options, error);
}

/* What is wrong with the broker's certificate, in words that help. */
static const char *
certificate_problem(int code)
{
	switch (code)
	{
		case X509_V_ERR_CERT_HAS_EXPIRED:
			return "it has expired";
		case X509_V_ERR_CERT_NOT_YET_VALID:
			return "it is not valid yet";
		case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
			return "it is self-signed and not among the trusted ones";
		case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
			return "the authority that signed it is self-signed and not among the trusted ones";
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
		case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
		case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
			return "the authority that signed it is not among the trusted ones";
		case X509_V_ERR_HOSTNAME_MISMATCH:
			return "it is for another host name";
		case X509_V_ERR_IP_ADDRESS_MISMATCH:
			return "it is for another address";
		default:
			return X509_verify_cert_error_string(code);
	}
}

static const char *
connect_problem(int status, GuardOutcome outcome, int save_errno)
{
	const char *reason = broker_tls_reason();

	if (outcome == GUARD_KICKED)
		return "the process is being terminated";
	if (outcome == GUARD_TIMED_OUT || status == AMQP_STATUS_TIMEOUT)
		return "timed out";
	/* OpenSSL's words for an answer that is no TLS at all. */
	if (strcmp(reason, "wrong version number") == 0)
		return "the server does not speak TLS on this port (wrong version number)";
	if (status == AMQP_STATUS_SSL_CONNECTION_FAILED && reason[0] == '\0')
		return "the broker closed the connection during the TLS handshake";
	if (reason[0] != '\0')
		return reason;
	if (status != AMQP_STATUS_SOCKET_ERROR)
		return amqp_error_string2(status);

	/* The library asks for the reason of a connect that failed later, but keeps it to itself. */
	return save_errno == 0 || save_errno == EINPROGRESS ? "connection refused or host unreachable"
	                                                    : strerror(save_errno);
}

static pgsocket
socket_of(void *arg)
{
	return amqp_get_sockfd((amqp_connection_state_t) arg);
}

bool
broker_dial_tls(BrokerConn *conn, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	struct timeval timeout = {options->connect_timeout_ms / 1000, (options->connect_timeout_ms % 1000) * 1000};
	TlsVerdict *verdict = MemoryContextAllocZero(conn->context, sizeof(TlsVerdict));
	amqp_socket_t *socket = amqp_ssl_socket_new(conn->rabbit);
	const char *where = broker_endpoint_text(endpoint);
	GuardOutcome outcome;
	int status;
	int save_errno;

	if (socket == NULL)
		return broker_fail(error, BROKER_UNREACHABLE, "could not set up TLS");
	ERR_clear_error();
	if (!configure(amqp_ssl_socket_get_context(socket), verdict, endpoint->host, options, error))
		return false;

	/* The library's own checks would only repeat ours, with less to say. */
	amqp_ssl_socket_set_verify_peer(socket, 0);
	amqp_ssl_socket_set_verify_hostname(socket, 0);

	guard_begin_opening(socket_of, conn->rabbit, options->connect_timeout_ms);
	errno = 0;
	status = amqp_socket_open_noblock(socket, endpoint->host, endpoint->port, &timeout);
	save_errno = errno;
	outcome = guard_end();

	if (status == AMQP_STATUS_OK && outcome == GUARD_QUIET)
		return true;
	if (verdict->development)
		return broker_fail(error, BROKER_UNREACHABLE, "%s presented a development certificate", where);
	if (verdict->code != X509_V_OK)
		return broker_fail(error, BROKER_UNREACHABLE, "the certificate of %s was refused: %s", where,
		                   certificate_problem(verdict->code));
	return broker_fail(error, BROKER_UNREACHABLE, "could not connect to %s: %s", where,
	                   connect_problem(status, outcome, save_errno));
}
