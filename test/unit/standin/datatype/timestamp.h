/*
 * datatype/timestamp.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_TIMESTAMP_H
#define ACEMQ_STANDIN_TIMESTAMP_H

#include "postgres.h"

typedef int64 TimestampTz;

#endif /* ACEMQ_STANDIN_TIMESTAMP_H */
