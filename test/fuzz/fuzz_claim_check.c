/*
 * fuzz_claim_check.c
 *		A body that may have a claim-check frame around it, with either form of
 *		header that the server gives a value.
 */
#include "claim_check_frame.h"

#include "input.h"

static bytea *
make_bytea(const char *data, Size len, bool in_short)
{
	Size header = in_short ? 1 : VARHDRSZ;
	bytea *value = palloc(Max(header + len, 1));

	if (in_short)
		*(uint8 *) value = (uint8) ((len + 1) << 1 | 1);
	else
		SET_VARSIZE(value, header + len);
	memcpy((char *) value + header, data, len);
	return value;
}

static void
check_framed(ClaimCheckFrame kind, const char *content, int len)
{
	bytea *framed = claim_check_framed(kind, content, len);

	MUST(claim_check_frame_of(framed) == kind);
	MUST(VARSIZE_ANY_EXHDR(framed) == (Size) len + CLAIM_CHECK_HEADER);
	MUST(memcmp(VARDATA_ANY(framed) + CLAIM_CHECK_HEADER, content, len) == 0);
}

void
fuzz_one(Input *input)
{
	bool in_short = (input_byte(input) & 1) != 0;
	Size len;
	char *data = input_bytes(input, in_short ? 126 : input->left, &len);
	bytea *body = make_bytea(data, len, in_short);
	ClaimCheckFrame kind = claim_check_frame_of(body);

	MUST(kind == CLAIM_CHECK_UNFRAMED || len >= CLAIM_CHECK_HEADER);
	if (kind == CLAIM_CHECK_CHECKED)
	{
		int key_len;
		const char *key = claim_check_frame_key(body, &key_len);

		MUST(key_len == (int) len - CLAIM_CHECK_HEADER);
		MUST(!claim_check_is_key(key, key_len) || memchr(key, '/', key_len) == NULL);
	}
	check_framed(CLAIM_CHECK_INLINE, data, (int) len);
	check_framed(CLAIM_CHECK_CHECKED, data, (int) len);
	(void) claim_check_is_key(data, (int) len);
}
