/*
 * claim_check_offload.c
 *		Which bodies are checked in on their way into the outbox.
 *
 * May depend on: claim_check_frame.h, guc.h, uuid.h, compat.h.
 */
#include "claim_check_offload.h"

#include "claim_check_frame.h"
#include "compat.h"
#include "uuid.h"

bool
claim_check_offloads(const bytea *body)
{
	return claim_check_reached(VARSIZE_ANY_EXHDR(body)) && claim_check_frame_of(body) == CLAIM_CHECK_UNFRAMED;
}

bytea *
claim_check_offload_frame(char *key)
{
	uuid_v4(key);
	return claim_check_framed(CLAIM_CHECK_CHECKED, key, UUID_TEXT_LEN);
}
