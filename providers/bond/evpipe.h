/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A pipe of fixed-size event records, in the place of a descriptor that the kernel would have fed:
 * the application reads one end with libibverbs' own calls, the bond writes the other.
 */
#ifndef BOND_EVPIPE_H
#define BOND_EVPIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVPIPE_RECORD_MAX = 32 };

/* Never blocks: a record that finds the pipe full (4096 unread events) is dropped. 0 or errno. */
int evpipe_write(int wr_fd, const void *record, size_t size);
/*
 * Takes the records about @element (their first 8 bytes) out again, and says how many that were.
 * Never blocks. The application may read @rd_fd meanwhile: what it gets first is delivered, and the
 * rest it sees in the order it was written.
 */
unsigned int evpipe_purge(int rd_fd, int wr_fd, size_t size, uint64_t element);

#endif
