/*
 * databases.h
 *		What the launcher knows of each database of the cluster.
 *
 * May depend on: src/shmem.h.
 */
#ifndef ACEMQ_DATABASES_H
#define ACEMQ_DATABASES_H

#include "shmem.h"

#include "lib/ilist.h"
#include "postmaster/bgworker.h"

/* The states and what leads from one to the other are drawn in bgworker/README.md. */
typedef enum DatabaseState
{
	DATABASE_DUE,       /* a worker is to be started at start_at */
	DATABASE_LAUNCHED,  /* the server was asked for a worker, which has not been seen to end */
	DATABASE_ABSENT,    /* no extension there: until somebody says that there is */
	DATABASE_OVER_LIMIT /* extension is there, but acemq.max_databases others are served */
} DatabaseState;

typedef struct Database
{
	dlist_node node;
	Oid oid;
	char name[NAMEDATALEN];
	bool listed; /* in pg_database and open to connections when last looked */
	bool held;   /* somebody wants it for himself: as of the last turn */
	DatabaseState state;
	AcemqSlot *slot; /* NULL: none */

	/* while a worker is launched */
	BackgroundWorkerHandle *handle; /* NULL: an earlier launcher started it */
	pid_t adopted_pid;              /* then: its process id as far as known */
	TimestampTz launched_at;
	TimestampTz asked_to_leave_at; /* 0: it has not been, as far as known */
	bool terminated;               /* it got SIGTERM */
	bool asked_again;              /* somebody asked for a worker meanwhile: its finding may be out of date */

	/* while due */
	TimestampTz start_at;
	int young_deaths; /* errors in a row that came soon after a start */

	bool limit_reported;
} Database;

/* In the order of pg_database; entries live in TopMemoryContext. */
extern dlist_head databases;

/*
 * Bring the list up to date with pg_database: new entries are due at once, the others get
 * `listed` right.  False: pg_database is locked by somebody, try again later.
 */
extern bool databases_scan(void);

extern Database *databases_find(Oid oid);
extern Database *databases_add(Oid oid, const char *name);
extern void databases_remove(Database *database);

#endif /* ACEMQ_DATABASES_H */
