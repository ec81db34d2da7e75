/*
 * utils/jsonb.h (stand-in)
 *		A jsonb is the row of tokens that its iterator gives.
 */
#ifndef ACEMQ_STANDIN_JSONB_H
#define ACEMQ_STANDIN_JSONB_H

#include "utils/numeric.h"

typedef enum JsonbIteratorToken
{
	WJB_DONE,
	WJB_KEY,
	WJB_VALUE,
	WJB_ELEM,
	WJB_BEGIN_ARRAY,
	WJB_END_ARRAY,
	WJB_BEGIN_OBJECT,
	WJB_END_OBJECT
} JsonbIteratorToken;

enum jbvType
{
	jbvNull,
	jbvString,
	jbvNumeric,
	jbvBool,
	jbvBinary
};

typedef struct Jsonb Jsonb;

typedef struct JsonbValue
{
	enum jbvType type;
	union
	{
		Numeric numeric;
		bool boolean;
		struct
		{
			int len;
			char *val;
		} string;
		Jsonb *binary;
	} val;
} JsonbValue;

typedef struct JsonbToken
{
	JsonbIteratorToken token;
	JsonbValue value;
} JsonbToken;

typedef struct JsonbContainer
{
	JsonbToken *tokens;
	int count;
	int capacity;
} JsonbContainer;

struct Jsonb
{
	JsonbContainer root;
};

typedef struct JsonbIterator
{
	const JsonbContainer *container;
	int next;
} JsonbIterator;

typedef struct JsonbParseState
{
	Jsonb *made;
	int depth;
} JsonbParseState;

#define JB_ROOT_IS_OBJECT(jsonb) ((jsonb)->root.count > 0 && (jsonb)->root.tokens[0].token == WJB_BEGIN_OBJECT)

/* jsonb.c only */
extern void standin_jsonb_append(JsonbContainer *container, JsonbIteratorToken token, const JsonbValue *value);
extern JsonbIterator *JsonbIteratorInit(JsonbContainer *container);
extern JsonbIteratorToken JsonbIteratorNext(JsonbIterator **it, JsonbValue *value, bool skip_nested);
extern JsonbValue *pushJsonbValue(JsonbParseState **state, JsonbIteratorToken token, JsonbValue *value);
extern Jsonb *JsonbValueToJsonb(JsonbValue *value);

#endif /* ACEMQ_STANDIN_JSONB_H */
