/*
 * varatt.h (stand-in, part of postgres.h)
 *		Values of variable length with headers of one and of four bytes, as on a
 *		little-endian machine.
 */
#ifndef ACEMQ_STANDIN_VARATT_H
#define ACEMQ_STANDIN_VARATT_H

typedef struct varlena
{
	uint8 bytes[4];
} bytea;

#define VARHDRSZ 4

static inline bool
standin_is_short(const void *value)
{
	return (*(const uint8 *) value & 1) != 0;
}

static inline Size
VARSIZE_ANY_EXHDR(const void *value)
{
	uint32 header;

	if (standin_is_short(value))
		return (*(const uint8 *) value >> 1) - 1;
	memcpy(&header, value, VARHDRSZ);
	return (header >> 2) - VARHDRSZ;
}

static inline char *
VARDATA_ANY(const void *value)
{
	return (char *) value + (standin_is_short(value) ? 1 : VARHDRSZ);
}

static inline void
SET_VARSIZE(void *value, Size size)
{
	uint32 header = (uint32) size << 2;

	memcpy(value, &header, VARHDRSZ);
}

#define VARDATA(value) ((char *) (value) + VARHDRSZ)

#endif /* ACEMQ_STANDIN_VARATT_H */
