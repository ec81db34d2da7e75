/*
 * fingerprint.c
 *		What tells one schema definition from another.
 *
 * May depend on: utf8.h.
 */
#include "fingerprint.h"

#include "compat.h"
#include "utf8.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "utils/builtins.h"

static void
sha256(const char *bytes, int len, uint8 *digest)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);

	if (pg_cryptohash_init(context) < 0 || pg_cryptohash_update(context, (const uint8 *) bytes, len) < 0 ||
	    pg_cryptohash_final(context, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
		                errmsg("could not compute a SHA-256 hash: %s", pg_cryptohash_error(context))));
	pg_cryptohash_free(context);
}

text *
fingerprint_of(const text *definition, const char *argument)
{
	uint8 digest[PG_SHA256_DIGEST_LENGTH];
	text *fingerprint = palloc(VARHDRSZ + FINGERPRINT_LEN);
	int len;
	const char *utf8 = utf8_from_server(VARDATA_ANY(definition), VARSIZE_ANY_EXHDR(definition), &len, argument);

	sha256(utf8, len, digest);
	SET_VARSIZE(fingerprint, VARHDRSZ + FINGERPRINT_LEN);
	(void) hex_encode((const char *) digest, sizeof(digest), VARDATA(fingerprint));
	return fingerprint;
}
