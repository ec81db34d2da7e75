/*
 * guc.h
 *		The settings, as variables.  Units are in the names where they are not
 *		obvious; guc.c has the ranges and the words.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_GUC_H
#define ACEMQ_GUC_H

#include "acemq.h"

typedef enum AcemqTlsVerify
{
	ACEMQ_TLS_VERIFY_FULL,
	ACEMQ_TLS_VERIFY_CA,
	ACEMQ_TLS_VERIFY_NONE
} AcemqTlsVerify;

extern char *acemq_url;
extern char *acemq_password_file;
extern char *acemq_tls_ca_file;
extern char *acemq_tls_cert_file;
extern char *acemq_tls_key_file;
extern int acemq_tls_verify;      /* AcemqTlsVerify */
extern int acemq_io_timeout;      /* ms */
extern int acemq_connect_timeout; /* ms */
extern int acemq_heartbeat;       /* s */
extern int acemq_max_in_flight;
extern int acemq_max_in_flight_bytes; /* kB */
extern int acemq_confirm_timeout;     /* ms */
extern int acemq_poll_interval;       /* ms */
extern int acemq_max_attempts;
extern int acemq_retry_delay;           /* ms */
extern int acemq_retry_delay_max;       /* ms */
extern int acemq_outbox_retention;      /* s */
extern int acemq_max_body_size;         /* kB */
extern int acemq_max_headers_size;      /* kB */
extern int acemq_idempotency_lease;     /* ms */
extern int acemq_idempotency_retention; /* s */
extern int acemq_claim_check_threshold; /* bytes; -1: off */
extern char *acemq_origin;
extern char *acemq_owner;
extern bool acemq_relay;
extern bool acemq_scheduler;
extern int acemq_max_databases;
#ifdef ACEMQ_KILL_POINTS
extern char *acemq_kill_point;
#endif

/* Defines the settings that work without preloading; with `preloading` also the PGC_POSTMASTER ones. */
extern void acemq_guc_init(bool preloading);

/* acemq.origin, or acemq@<host>.  Static storage, UTF-8 or ASCII, at most 255 bytes. */
extern const char *acemq_origin_text(void);

#endif /* ACEMQ_GUC_H */
