/*
 * text.c
 *		Making text from the network fit to be shown.
 *
 * May depend on: acemq.h, the server's encoding functions.
 */
#include "text.h"

#include "mb/pg_wchar.h"

void
text_clean(char *target, Size size, const void *data, Size len)
{
	const unsigned char *in = len > 0 ? data : (const void *) ""; /* an empty text of the library points nowhere */
	const unsigned char *end = in + len;
	char *out = target;
	char *last = target + size - 1;

	while (in < end)
	{
		int width = pg_encoding_verifymbchar(PG_UTF8, (const char *) in, (int) Min(end - in, 4));

		if (out + Max(width, 1) > last)
			break;
		if (width <= 1)
		{
			*out++ = width < 0 ? '?' : (*in < ' ' || *in == 0x7f) ? ' ' : (char) *in;
			in++;
			continue;
		}
		memcpy(out, in, width);
		out += width;
		in += width;
	}
	*out = '\0';
}
