/*
 * slots.h
 *		Who a slot belongs to: the launcher gives a database a slot and takes
 *		it back, the worker attaches to it and says what it found.
 *
 * May depend on: src/shmem.h.
 */
#ifndef ACEMQ_SLOTS_H
#define ACEMQ_SLOTS_H

#include "shmem.h"

/* ---- launcher ---- */

/*
 * The slot of a database, marked as launched; the one it has, or a free one.
 * NULL: the database is held, or no slot is free.
 */
extern AcemqSlot *slot_begin_launch(Oid database);
/* Its worker has ended (or could not be started): whoever waits for that goes on.  What it found. */
extern AcemqFinding slot_end_launch(AcemqSlot *slot, bool *on_request);
/* The database needs no slot any more. */
extern void slot_free(AcemqSlot *slot);
/* Served databases may not be more than acemq.max_databases: true if one more fits. */
extern bool slot_seat_is_free(void);

/* ---- worker ---- */

/*
 * Become the worker of a database.  NULL: not wanted any more, or there is
 * one.  From here on the end of the process, whatever its cause, detaches.
 */
extern AcemqSlot *slot_attach(Oid database);
/* SIGTERM came: async-signal-safe. */
extern void slot_note_request(void);
extern void slot_report(AcemqSlot *slot, AcemqFinding finding);
/* The extension is here: take one of the seats.  False: all are taken (and that is reported). */
extern bool slot_take_seat(AcemqSlot *slot);

#endif /* ACEMQ_SLOTS_H */
