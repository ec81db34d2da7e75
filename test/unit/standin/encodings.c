/*
 * encodings.c (stand-in)
 */
#include "mb/pg_wchar.h"

int standin_database_encoding = PG_UTF8;

/* As the server has it: no zero byte, no overlong form, no surrogate, nothing above U+10FFFF. */
int
pg_encoding_verifymbchar(int encoding, const char *text, int len)
{
	const unsigned char *s = (const unsigned char *) text;
	int width = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32 point = width == 1 ? s[0] : s[0] & (0x7f >> width);

	assert(encoding == PG_UTF8 && len > 0);
	if (width > len || s[0] == 0 || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4)
		return -1;
	for (int i = 1; i < width; i++)
	{
		if ((s[i] & 0xc0) != 0x80)
			return -1;
		point = (point << 6) | (s[i] & 0x3f);
	}
	if ((width == 3 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
	    (width == 4 && (point < 0x10000 || point > 0x10ffff)))
		return -1;
	return width;
}

bool
pg_verify_mbstr(int encoding, const char *text, int len, bool no_error)
{
	assert(no_error);
	while (len > 0)
	{
		int width = pg_encoding_verifymbchar(encoding, text, len);

		if (width < 0)
			return false;
		text += width;
		len -= width;
	}
	return true;
}

int
pg_encoding_mbcliplen(int encoding, const char *text, int len, int limit)
{
	int kept = 0;

	while (kept < len && text[kept] != '\0')
	{
		unsigned char first = (unsigned char) text[kept];
		int width = first < 0x80             ? 1
		            : (first & 0xe0) == 0xc0 ? 2
		            : (first & 0xf0) == 0xe0 ? 3
		            : (first & 0xf8) == 0xf0 ? 4
		                                     : 1;

		if (kept + width > Min(len, limit))
			break;
		kept += width;
	}
	return kept;
}

/* LATIN1 is the one that has to be converted. */
char *
pg_server_to_any(const char *text, int len, int encoding)
{
	char *converted;
	char *out;

	assert(encoding == PG_UTF8 && standin_database_encoding == PG_LATIN1);
	if (len == 0)
		return (char *) text;
	out = converted = palloc(2 * (Size) len + 1);
	for (int i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (c >= 0x80)
			*out++ = (char) (0xc0 | (c >> 6));
		*out++ = (char) (c < 0x80 ? c : 0x80 | (c & 0x3f));
	}
	*out = '\0';
	return converted;
}

char *
pg_any_to_server(const char *text, int len, int encoding)
{
	char *converted;
	char *out;

	if (!pg_verify_mbstr(encoding, text, len, true))
		ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE), errmsg("invalid byte sequence")));
	if (standin_database_encoding != PG_LATIN1)
		return (char *) text;
	out = converted = palloc((Size) len + 1);
	for (int i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) text[i];

		if (c >= 0xc4)
			ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE), errmsg("no equivalent in LATIN1")));
		*out++ = (char) (c < 0x80 ? c : (c << 6) | (text[++i] & 0x3f));
	}
	*out = '\0';
	return converted;
}
