/*-------------------------------------------------------------------------
 *
 * targets.c
 *		Counters by exchange and routing key, for acemq.metrics.
 *
 * Names come from applications, and some put an id into the routing key: the
 * table has an end, and what comes after it is counted together.  The worker
 * is the only writer; a reader looks at the first `ntargets` entries, whose
 * names do not change any more.
 *
 * May depend on: shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "shmem.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"

StaticAssertDecl((ACEMQ_TARGET_INDEX & (ACEMQ_TARGET_INDEX - 1)) == 0 && ACEMQ_TARGET_INDEX > 2 * ACEMQ_TARGETS,
                 "the index has free places, so that a search ends");

/* A name of a row put in past the function may be longer than the protocol allows. */
static int
fitting_length(const char *name)
{
	int len = strlen(name);
	int room = sizeof(((AcemqTarget *) NULL)->exchange) - 1;

	return len <= room ? len : pg_encoding_mbcliplen(PG_UTF8, name, len, room);
}

static bool
is_name(const char *kept, const char *name, int len)
{
	return memcmp(kept, name, len) == 0 && kept[len] == '\0';
}

static void
set_name(char *kept, const char *name, int len)
{
	memcpy(kept, name, len);
	kept[len] = '\0';
}

static AcemqTarget *
target_of(AcemqSlot *slot, const char *exchange, const char *routing_key)
{
	int exchange_len = fitting_length(exchange);
	int key_len = fitting_length(routing_key);
	uint64 hash = hash_bytes_extended((const unsigned char *) routing_key, key_len,
	                                  hash_bytes_extended((const unsigned char *) exchange, exchange_len, 0));
	uint32 count = pg_atomic_read_u32(&slot->ntargets);
	uint32 place = hash % ACEMQ_TARGET_INDEX;
	AcemqTarget *target;

	for (; slot->target_index[place] != 0; place = (place + 1) % ACEMQ_TARGET_INDEX)
	{
		target = &slot->targets[slot->target_index[place] - 1];
		if (target->hash == hash && is_name(target->exchange, exchange, exchange_len) &&
		    is_name(target->routing_key, routing_key, key_len))
			return target;
	}
	if (count == ACEMQ_TARGETS)
		return &slot->targets[ACEMQ_TARGET_OTHER];

	target = &slot->targets[count];
	target->hash = hash;
	set_name(target->exchange, exchange, exchange_len);
	set_name(target->routing_key, routing_key, key_len);
	pg_write_barrier(); /* names before the number that shows them */
	pg_atomic_write_u32(&slot->ntargets, count + 1);
	slot->target_index[place] = count + 1;
	return target;
}

void
acemq_slot_note_published(AcemqSlot *slot, const char *exchange, const char *routing_key, int64 lag_us)
{
	AcemqTarget *target = target_of(slot, exchange, routing_key);

	pg_atomic_write_u64(&target->published, pg_atomic_read_u64(&target->published) + 1);
	pg_atomic_write_u64(&target->lag_us, pg_atomic_read_u64(&target->lag_us) + Max(lag_us, 0));
}

void
acemq_slot_note_failed(AcemqSlot *slot, const char *exchange, const char *routing_key)
{
	AcemqTarget *target = target_of(slot, exchange, routing_key);

	pg_atomic_write_u64(&target->failed, pg_atomic_read_u64(&target->failed) + 1);
}

void
acemq_slot_forget_targets(AcemqSlot *slot)
{
	pg_atomic_init_u32(&slot->ntargets, 0);
	memset(slot->target_index, 0, sizeof(slot->target_index));
	for (int i = 0; i <= ACEMQ_TARGETS; i++)
	{
		pg_atomic_init_u64(&slot->targets[i].published, 0);
		pg_atomic_init_u64(&slot->targets[i].failed, 0);
		pg_atomic_init_u64(&slot->targets[i].lag_us, 0);
	}
}
