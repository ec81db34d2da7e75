/*
 * utils/fmgrprotos.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_FMGRPROTOS_H
#define ACEMQ_STANDIN_FMGRPROTOS_H

#include "utils/numeric.h"

#endif /* ACEMQ_STANDIN_FMGRPROTOS_H */
