/*
 * session.h
 *		Settings of a worker's session that must not be somebody else's.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_SESSION_H
#define ACEMQ_SESSION_H

/* Overrides what ALTER DATABASE, ALTER ROLE or the configuration file says.  After the connection is made. */
extern void session_fix_settings(void);

/* From here on every message tells which database it comes from. */
extern void session_name_messages(const char *process);

#endif /* ACEMQ_SESSION_H */
