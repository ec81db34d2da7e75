/*
 * miscadmin.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_MISCADMIN_H
#define ACEMQ_STANDIN_MISCADMIN_H

#define CHECK_FOR_INTERRUPTS() ((void) 0)
#define check_stack_depth()    ((void) 0)

#endif /* ACEMQ_STANDIN_MISCADMIN_H */
