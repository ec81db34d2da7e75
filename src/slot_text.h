/*
 * slot_text.h
 *		The texts of a slot, in the encoding of this database.
 *
 * May depend on: shmem.h.
 */
#ifndef ACEMQ_SLOT_TEXT_H
#define ACEMQ_SLOT_TEXT_H

#include "shmem.h"

typedef struct SlotTexts
{
	/* palloc'd, "" when there is none */
	char *broker;
	char *last_error; /* the newer one, of a message or of the connection */
	char *connection_error;
	char *held_by;
	char *scheduler_problem;
	TimestampTz last_error_at; /* 0: none */
	TimestampTz connection_error_at;
} SlotTexts;

extern SlotTexts slot_texts(AcemqSlot *slot);

#endif /* ACEMQ_SLOT_TEXT_H */
