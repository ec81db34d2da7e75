/*
 * slot_text.c
 *		The texts of a slot, in the encoding of this database.
 *
 * May depend on: shmem.h.
 */
#include "slot_text.h"

#include "mb/pg_wchar.h"

/*
 * The worker keeps UTF-8.  What another encoding may not have is shown as a
 * question mark, so that a broker's words never make a status unreadable.
 */
static char *
to_server(const char *text)
{
	char *copy = pstrdup(text);

	if (GetDatabaseEncoding() != PG_UTF8)
		for (char *p = copy; *p != '\0'; p++)
			if (IS_HIGHBIT_SET(*p))
				*p = '?';
	return copy;
}

SlotTexts
slot_texts(AcemqSlot *slot)
{
	SlotTexts texts;

	LWLockAcquire(&slot->text_lock, LW_SHARED);
	texts.broker = to_server(slot->broker);
	texts.last_error = to_server(slot->last_error);
	texts.last_error_at = slot->last_error_at;
	texts.connection_error = to_server(slot->connection_error);
	texts.connection_error_at = slot->connection_error_at;
	texts.held_by = to_server(slot->held_by);
	texts.scheduler_problem = to_server(slot->scheduler_problem);
	LWLockRelease(&slot->text_lock);

	if (texts.connection_error_at > texts.last_error_at)
	{
		texts.last_error = texts.connection_error;
		texts.last_error_at = texts.connection_error_at;
	}
	return texts;
}
