/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See interpose.h. Definitions in a program come before those of any library that it loads. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "interpose.h"

#define EXPORT __attribute__((visibility("default")))

int ioctl_answer_errno;
unsigned int ioctl_count;
uint32_t ioctl_driver_id;

EXPORT int open(const char *path, int flags, ...);
EXPORT int open64(const char *path, int flags, ...);
EXPORT int ioctl(int fd, unsigned long request, ...);

dev_t interposed_cdev(void)
{
	struct stat st;

	return stat("/dev/null", &st) ? 0 : st.st_rdev;
}

static int open_at_last(const char *path, int flags, mode_t mode)
{
	if (strncmp(path, "/dev/infiniband/", strlen("/dev/infiniband/")) == 0)
		path = "/dev/null";
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return open_at_last(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return open_at_last(path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...)
{
	const struct ib_uverbs_ioctl_hdr *hdr;
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request != RDMA_VERBS_IOCTL)
		return (int)syscall(SYS_ioctl, fd, request, arg);

	hdr = arg;
	ioctl_count++;
	ioctl_driver_id = hdr->driver_id;
	if (!ioctl_answer_errno)
		return 0;
	errno = ioctl_answer_errno;
	return -1;
}
