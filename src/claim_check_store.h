/*
 * claim_check_store.h
 *		The table of payloads that are checked in, accessed as its owner.
 *
 * Payloads never change, so there is no version of one to be consistent with:
 * reading and deleting look at what is committed now, at every isolation level,
 * and at what this transaction has done.
 *
 * May depend on: as_owner.h, saved_plan.h.
 */
#ifndef ACEMQ_CLAIM_CHECK_STORE_H
#define ACEMQ_CLAIM_CHECK_STORE_H

#include "acemq.h"

/* `payload` is a bytea in whatever form; `key` is new. */
extern void claim_check_store_put(const char *key, Datum payload);

/* Palloc'd; NULL if there is none under that key. */
extern bytea *claim_check_store_get(text *key);

/* Whether there was one. */
extern bool claim_check_store_delete(text *key);

#endif /* ACEMQ_CLAIM_CHECK_STORE_H */
