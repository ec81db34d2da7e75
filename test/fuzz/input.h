/*
 * input.h
 *		What the targets share: taking a fuzzer's bytes apart, and saying what
 *		must hold.
 *
 * Every target defines fuzz_one(), which runs with an empty memory context as the
 * current one; the context is deleted afterwards, so nothing leaks but what does
 * not belong to it.
 */
#ifndef ACEMQ_FUZZ_INPUT_H
#define ACEMQ_FUZZ_INPUT_H

#include "postgres.h"

typedef struct Input
{
	const uint8 *data;
	Size left;
} Input;

/* What holds whatever the input is; not assert(), so that it is there with every set of flags. */
#define MUST(condition)                                                                                                \
	do                                                                                                                 \
	{                                                                                                                  \
		if (!(condition))                                                                                              \
		{                                                                                                              \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
			abort();                                                                                                   \
		}                                                                                                              \
	} while (0)

/* 0 at the end. */
static inline uint8
input_byte(Input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->data++;
}

/* At most `len` bytes, in memory of their own, so that reading beyond them shows. */
static inline char *
input_bytes(Input *input, Size len, Size *got)
{
	char *copy;

	*got = Min(len, input->left);
	copy = palloc(*got);
	memcpy(copy, input->data, *got);
	input->data += *got;
	input->left -= *got;
	return copy;
}

/* The same as text: terminated, and without a zero byte inside. */
static inline char *
input_text(Input *input, Size len)
{
	Size got;
	char *bytes = input_bytes(input, len, &got);

	return pnstrdup(bytes, got);
}

extern void fuzz_one(Input *input);

#endif /* ACEMQ_FUZZ_INPUT_H */
