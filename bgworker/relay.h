/*
 * relay.h
 *		The relay: committed rows of the outbox to the broker, the broker's
 *		answers back to the outbox.
 *
 * The worker's loop calls relay_step() whenever something may have happened:
 * latch, socket, deadline.
 *
 * May depend on: src/shmem.h.
 */
#ifndef ACEMQ_RELAY_H
#define ACEMQ_RELAY_H

#include "acemq.h"
#include "shmem.h"

#include "datatype/timestamp.h"

typedef struct Relay Relay;

extern Relay *relay_create(MemoryContext parent, AcemqSlot *slot);

/* A bounded amount of work; true: call again at once. */
extern bool relay_step(Relay *relay);
extern void relay_config_changed(Relay *relay);
/* Somebody may have mended what keeps it from connecting. */
extern void relay_try_now(Relay *relay);

/* A copy of another database has to keep away from the broker; whether it is one is not known at first. */
extern bool relay_fence_known(Relay *relay);
/* Not a copy.  It may be paused: that is about relaying. */
extern bool relay_fence_allows_broker(Relay *relay);

/* What to wait for: PGINVALID_SOCKET for none, 0 for no deadline. */
extern pgsocket relay_socket(Relay *relay);
extern bool relay_wants_write(Relay *relay);
extern TimestampTz relay_next_deadline(Relay *relay);

/* The extension is gone or of another version: let go of everything and hang up. */
extern void relay_shutdown(Relay *relay);

#endif /* ACEMQ_RELAY_H */
