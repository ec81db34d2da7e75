/*
 * text.h
 *		Making text from the network fit to be shown.
 *
 * May depend on: acemq.h, the server's encoding functions.
 */
#ifndef ACEMQ_AMQP_TEXT_H
#define ACEMQ_AMQP_TEXT_H

#include "acemq.h"

/*
 * Copy at most size - 1 bytes of `data` as one line of valid UTF-8: invalid
 * bytes become "?", control characters blanks, and no character is cut in half.
 */
extern void text_clean(char *target, Size size, const void *data, Size len);

#endif /* ACEMQ_AMQP_TEXT_H */
