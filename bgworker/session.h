/*
 * session.h
 *		Settings of a worker's session that must not be somebody else's.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_SESSION_H
#define ACEMQ_SESSION_H

/*
 * A reload that comes while the process starts is lost: its signal is ignored
 * until we have a handler.  So the first turn reads the configuration file as if
 * there had been one.  Before signals are unblocked.
 */
extern void session_reload_first(void);

/* Overrides what ALTER DATABASE, ALTER ROLE or the configuration file says.  After the connection is made. */
extern void session_fix_settings(void);

/* What a turn frees is not given back to the kernel, because the next one needs it again: at most some megabytes. */
extern void session_keep_memory(void);

/* From here on every message tells which database it comes from. */
extern void session_name_messages(const char *process);

#endif /* ACEMQ_SESSION_H */
