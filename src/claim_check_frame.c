/*
 * claim_check_frame.c
 *		The frame around a body that may have been checked in.
 *
 * May depend on: compat.h.
 */
#include "claim_check_frame.h"

#include "compat.h"

#define MAGIC        "\xac\x01" /* no text in UTF-8 begins with it */
#define MAGIC_LEN    2
#define KIND_INLINE  0x00
#define KIND_CHECKED 0x01

ClaimCheckFrame
claim_check_frame_of(const bytea *body)
{
	const char *bytes = VARDATA_ANY(body);

	if (VARSIZE_ANY_EXHDR(body) < CLAIM_CHECK_HEADER || memcmp(bytes, MAGIC, MAGIC_LEN) != 0)
		return CLAIM_CHECK_UNFRAMED;
	switch (bytes[MAGIC_LEN])
	{
		case KIND_INLINE:
			return CLAIM_CHECK_INLINE;
		case KIND_CHECKED:
			return CLAIM_CHECK_CHECKED;
		default:
			return CLAIM_CHECK_UNFRAMED;
	}
}

const char *
claim_check_frame_key(const bytea *body, int *len)
{
	Assert(claim_check_frame_of(body) == CLAIM_CHECK_CHECKED);
	*len = VARSIZE_ANY_EXHDR(body) - CLAIM_CHECK_HEADER;
	return VARDATA_ANY(body) + CLAIM_CHECK_HEADER;
}

bytea *
claim_check_framed(ClaimCheckFrame kind, const char *content, int len)
{
	bytea *body = (bytea *) palloc((Size) VARHDRSZ + CLAIM_CHECK_HEADER + len);
	char *bytes = VARDATA(body);

	Assert(kind != CLAIM_CHECK_UNFRAMED);
	SET_VARSIZE(body, VARHDRSZ + CLAIM_CHECK_HEADER + len);
	memcpy(bytes, MAGIC, MAGIC_LEN);
	bytes[MAGIC_LEN] = kind == CLAIM_CHECK_CHECKED ? KIND_CHECKED : KIND_INLINE;
	memcpy(bytes + CLAIM_CHECK_HEADER, content, len);
	return body;
}

/* Not isalnum(): what a letter is must not depend on the locale. */
static bool
is_alphanumeric(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool
claim_check_is_key(const char *key, int len)
{
	if (len < 1 || len > CLAIM_CHECK_MAX_KEY || !is_alphanumeric(key[0]))
		return false;
	for (int i = 1; i < len; i++)
		if (!is_alphanumeric(key[i]) && key[i] != '.' && key[i] != '_' && key[i] != '-')
			return false;
	return true;
}
