/*
 * common/shortest_dec.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_SHORTEST_DEC_H
#define ACEMQ_STANDIN_SHORTEST_DEC_H

/* jsonb.c only; not the shortest, but all of it. */
extern char *double_to_shortest_decimal(double number);

#endif /* ACEMQ_STANDIN_SHORTEST_DEC_H */
