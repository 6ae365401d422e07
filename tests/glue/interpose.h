/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The test program stands in for the kernel: open() and ioctl() of libibverbs end here. A uverbs
 * device is /dev/null, an ioctl leaves a note of the driver id that it carried.
 */
#ifndef TEST_INTERPOSE_H
#define TEST_INTERPOSE_H

#include <stdint.h>
#include <sys/types.h>

extern int ioctl_answer_errno; /* 0: ioctls succeed */
extern unsigned int ioctl_count;
extern uint32_t ioctl_driver_id; /* of the last one */

dev_t interposed_cdev(void);

#endif
