/*
 * utils/builtins.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_BUILTINS_H
#define ACEMQ_STANDIN_BUILTINS_H

#include "utils/numeric.h"

#endif /* ACEMQ_STANDIN_BUILTINS_H */
