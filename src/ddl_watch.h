/*
 * ddl_watch.h
 *		Statements of other people that our processes have to make room for.
 *
 * May depend on: shmem.h, guc.h.
 */
#ifndef ACEMQ_DDL_WATCH_H
#define ACEMQ_DDL_WATCH_H

/* From _PG_init while preloading: installs the ProcessUtility hook. */
extern void ddl_watch_init(void);

#endif /* ACEMQ_DDL_WATCH_H */
