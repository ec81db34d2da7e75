/*
 * main.c
 *		libFuzzer's entry: one input, one memory context.
 */
#include "input.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input input = {data, size};
	MemoryContext context = AllocSetContextCreate(NULL, "input", ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	jmp_buf error;

	standin_database_encoding = PG_UTF8;
	standin_error_return = &error;
	if (setjmp(error) == 0)
		fuzz_one(&input);
	standin_error_return = NULL;
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
	return 0;
}
