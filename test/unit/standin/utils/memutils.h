/*
 * utils/memutils.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_MEMUTILS_H
#define ACEMQ_STANDIN_MEMUTILS_H

#include "postgres.h"

#define ALLOCSET_DEFAULT_SIZES 0
#define ALLOCSET_SMALL_SIZES   0

extern MemoryContext AllocSetContextCreate(MemoryContext parent, const char *name, int sizes);
extern void MemoryContextRegisterResetCallback(MemoryContext context, MemoryContextCallback *callback);
extern void MemoryContextReset(MemoryContext context);
extern void MemoryContextDelete(MemoryContext context);

#endif /* ACEMQ_STANDIN_MEMUTILS_H */
