/*
 * utils/numeric.h (stand-in)
 *		A numeric is its decimal digits.
 */
#ifndef ACEMQ_STANDIN_NUMERIC_H
#define ACEMQ_STANDIN_NUMERIC_H

#include "postgres.h"

typedef char *Numeric;

#define NumericGetDatum(number) ((Datum) (number))
#define DatumGetNumeric(datum)  ((Numeric) (datum))
#define CStringGetDatum(text)   ((Datum) (text))
#define DatumGetCString(datum)  ((char *) (datum))
#define ObjectIdGetDatum(oid)   ((Datum) (oid))
#define Int32GetDatum(number)   ((Datum) (number))
#define DatumGetInt32(datum)    ((int32) (datum))
#define DatumGetBool(datum)     ((datum) != 0)
#define DatumGetFloat8(datum)   standin_float8(datum)

#define DirectFunctionCall1(function, a)       function(a)
#define DirectFunctionCall2(function, a, b)    function(a, b)
#define DirectFunctionCall3(function, a, b, c) function(a, b, c)

/* jsonb.c only */
extern double standin_float8(Datum datum);
extern Numeric int64_to_numeric(int64 number);
extern Datum numeric_in(Datum text, Datum oid, Datum typmod);
extern Datum numeric_out(Datum number);
extern Datum numeric_scale(Datum number);
extern Datum numeric_round(Datum number, Datum places);
extern Datum numeric_ne(Datum left, Datum right);
extern Datum numeric_float8_no_overflow(Datum number);

#endif /* ACEMQ_STANDIN_NUMERIC_H */
