/*
 * storage/fd.h (stand-in)
 */
#ifndef ACEMQ_STANDIN_FD_H
#define ACEMQ_STANDIN_FD_H

#define AcquireExternalFD() true
#define ReleaseExternalFD() ((void) 0)

#endif /* ACEMQ_STANDIN_FD_H */
