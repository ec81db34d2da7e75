/*
 * compat.h
 *		Every difference between the PostgreSQL versions we support (15 to 18).
 *		PG_VERSION_NUM appears nowhere else.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_COMPAT_H
#define ACEMQ_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "acemq needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Infinite intervals came with 17. */
#if PG_VERSION_NUM < 170000
#define INTERVAL_NOT_FINITE(interval) ((void) (interval), false)
#endif

/* 17 can fill a lexer that the caller owns; identity sequences are found from the open table. */
#if PG_VERSION_NUM >= 170000
#define compat_json_lexer(json, len, encoding) makeJsonLexContextCstringLen(NULL, json, len, encoding, false)
#define compat_identity_sequence(rel, attnum)  getIdentitySequence(rel, attnum, true)
#else
#define compat_json_lexer(json, len, encoding)                                                                         \
	makeJsonLexContextCstringLen(unconstify(char *, json), len, encoding, false)
#define compat_identity_sequence(rel, attnum) getIdentitySequence(RelationGetRelid(rel), attnum, true)
#endif

/* Up to 17 it is called pg_attribute_noreturn() and may stand behind a declaration too. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 18 lets a module tell its name and version. */
#if PG_VERSION_NUM >= 180000
#define compat_module_magic PG_MODULE_MAGIC_EXT(.name = "acemq", .version = ACEMQ_VERSION)
#else
#define compat_module_magic PG_MODULE_MAGIC
#endif

/* 16 has one ownership check for all kinds of objects. */
#if PG_VERSION_NUM >= 160000
#define compat_owns_database(database) object_ownercheck(DatabaseRelationId, database, GetUserId())
#else
#define compat_owns_database(database) pg_database_ownercheck(database, GetUserId())
#endif

/* From 17 a wait event set belongs to a resource owner (none: the session) and an extension names its waits. */
#if PG_VERSION_NUM >= 170000
#define compat_wait_event_set(nevents) CreateWaitEventSet(NULL, nevents)
#define compat_wait_event(name)        WaitEventExtensionNew(name)
#else
#define compat_wait_event_set(nevents) CreateWaitEventSet(TopMemoryContext, nevents)
#define compat_wait_event(name)        PG_WAIT_EXTENSION
#endif

/* 16 can leave out indexes that an update need not touch; 18 counts index searches, and knows deferrable primary keys. */
#if PG_VERSION_NUM >= 160000
#define CompatUpdateIndexes TU_UpdateIndexes
#define compat_insert_index_tuples(rel, slot, estate, update, no_dup_err, conflict, arbiters, which)                   \
	ExecInsertIndexTuples(rel, slot, estate, update, no_dup_err, conflict, arbiters, (which) == TU_Summarizing)
#define COMPAT_UPDATE_ALL_INDEXES TU_All
#define COMPAT_UPDATE_NO_INDEXES  TU_None
#else
#define CompatUpdateIndexes bool
#define compat_insert_index_tuples(rel, slot, estate, update, no_dup_err, conflict, arbiters, which)                   \
	ExecInsertIndexTuples(rel, slot, estate, update, no_dup_err, conflict, arbiters)
#define COMPAT_UPDATE_ALL_INDEXES true
#define COMPAT_UPDATE_NO_INDEXES  false
#endif
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#define compat_primary_key(rel)                             RelationGetPrimaryKeyIndex(rel, false)
#else
#define compat_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, nkeys, 0)
#define compat_primary_key(rel)                             RelationGetPrimaryKeyIndex(rel)
#endif

#endif /* ACEMQ_COMPAT_H */
