/*
 * db.h
 *		The transaction bracket of our processes: every statement the worker
 *		runs is inside db_run(), and nothing else is.
 *
 * Database column: knows no broker.
 * May depend on: src/shmem.h, src/compat.h.
 */
#ifndef ACEMQ_DB_H
#define ACEMQ_DB_H

#include "acemq.h"

#include "executor/spi.h"

typedef enum DbExtension
{
	DB_EXTENSION_PRESENT,
	DB_EXTENSION_ABSENT,
	DB_EXTENSION_OTHER_VERSION, /* the library does not fit the SQL */
	DB_BUSY                     /* somebody is dropping or altering it: ask again later */
} DbExtension;

/* In a short transaction of its own. */
extern DbExtension db_check_extension(void);

typedef enum DbResult
{
	DB_DONE,
	DB_SKIPPED, /* a lock was not to be had at once, or the statement was cancelled; nothing was changed */
	DB_FAILED,  /* an error that is about the table, not about the moment: db_failure(); nothing was changed */
	DB_GONE     /* extension absent or of another version: see db_check_extension() */
} DbResult;

/*
 * Run work(arg) in a transaction, as the owner of the outbox, with that table
 * locked ROW EXCLUSIVE and SPI connected.  Locks are taken conditionally; an
 * error that only means "not now" aborts the transaction and gives
 * DB_SKIPPED, any other DB_FAILED; one that says that something is wrong with
 * the server or with us ends the process (the launcher starts a new one).
 * `activity` is what pg_stat_activity shows.
 */
extern DbResult db_run(void (*work)(void *arg), void *arg, const char *activity);

/* The words of the last one that failed. */
extern const char *db_failure(void);

/* A plan that is prepared at first use and kept: constant text, so pg_stat_statements stays clean. */
typedef struct DbStatement
{
	const char *text;
	int nargs;
	Oid argtypes[8];
	SPIPlanPtr plan;
} DbStatement;

/* Inside db_run() only. nulls may be NULL.  Returns SPI_processed; rows are in SPI_tuptable. */
extern uint64 db_execute(DbStatement *statement, Datum *values, const char *nulls, long limit, int expected);

/* A SELECT that sees what the active snapshot shows, and not what was committed since: several of them see the same. */
extern uint64 db_select(DbStatement *statement, Datum *values, const char *nulls);

/* An array of bigint for `= ANY ($n)`. */
extern Datum db_int8_array(const int64 *ids, int count);

#endif /* ACEMQ_DB_H */
