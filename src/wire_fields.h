/*
 * wire_fields.h
 *		A neutral list of AMQP field values: what headers are between the jsonb
 *		of a row and the table of the client library.  Knows neither of them.
 *
 * Only the kinds every AceMQ library can read are ever built (docs/protocol.md,
 * section 1.4); the others occur in messages that are received and passed on.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_WIRE_FIELDS_H
#define ACEMQ_WIRE_FIELDS_H

#include "acemq.h"

typedef enum WireKind
{
	WIRE_STRING = 'S',
	WIRE_INT32 = 'I',
	WIRE_INT64 = 'l',
	WIRE_DOUBLE = 'd',
	WIRE_BOOL = 't',
	WIRE_VOID = 'V',
	WIRE_TABLE = 'F',
	WIRE_ARRAY = 'A',

	/* received only */
	WIRE_INT8 = 'b',
	WIRE_UINT8 = 'B',
	WIRE_INT16 = 's',
	WIRE_UINT16 = 'u',
	WIRE_UINT32 = 'i',
	WIRE_UINT64 = 'L',
	WIRE_FLOAT = 'f',
	WIRE_DECIMAL = 'D',
	WIRE_TIMESTAMP = 'T',
	WIRE_BYTES = 'x'
} WireKind;

typedef struct WireField
{
	const char *name; /* UTF-8, not terminated; NULL inside an array */
	int name_len;
	WireKind kind;
	union
	{
		struct
		{
			const char *data; /* UTF-8, not terminated; any bytes in WIRE_BYTES and in what was received */
			int len;
		} string;
		int64 integer;       /* WIRE_INT8 to WIRE_INT64, WIRE_UINT8 to WIRE_UINT32 */
		uint64 big_unsigned; /* WIRE_UINT64 and WIRE_TIMESTAMP */
		double number;
		float real; /* WIRE_FLOAT */
		struct
		{
			uint8 scale;
			uint32 value;
		} decimal;
		bool boolean;
		struct
		{
			struct WireField *items;
			int count;
		} list; /* WIRE_TABLE and WIRE_ARRAY */
	} value;
} WireField;

/* A growing table; memory is palloc'd in the context that is current when a field is added. */
typedef struct WireTable
{
	WireField *fields;
	int count;
	int capacity;
} WireTable;

extern WireField *wire_table_add(WireTable *table, const char *name, int name_len, WireKind kind);
extern void wire_table_add_string(WireTable *table, const char *name, const char *value);
extern void wire_table_add_int(WireTable *table, const char *name, WireKind kind, int64 value);

/* Bytes the table takes in a content header frame: AMQP 0-9-1 section 4.2.5.5, with the 4 length bytes. */
extern Size wire_table_size(const WireTable *table);

#endif /* ACEMQ_WIRE_FIELDS_H */
