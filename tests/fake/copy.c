/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Moving payload, as a NIC does: the memory belongs to applications that may look at it meanwhile,
 * and some wait for the last byte. So bytes become visible in ascending order at the end of a copy,
 * and ThreadSanitizer, which would call that a race, does not see them; AddressSanitizer does, so
 * that data into freed memory is found.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine.h"

#define TAIL_BYTES 8

#if defined(__SANITIZE_THREAD__)
#define HAVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAVE_TSAN 1
#endif
#endif

#ifdef HAVE_TSAN
#define UNSEEN __attribute__((no_sanitize("thread"), noinline))

/* Not memmove, which ThreadSanitizer intercepts. */
UNSEEN static void copy_body(uint8_t *to, const uint8_t *from, size_t n)
{
	volatile uint8_t *t = to;
	const volatile uint8_t *f = from;

	if (to > from && to < from + n) {
		while (n--)
			t[n] = f[n];
		return;
	}
#if defined(__x86_64__)
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#else
	for (size_t i = 0; i < n; i++)
		t[i] = f[i];
#endif
}
#else
#define UNSEEN
static void copy_body(uint8_t *to, const uint8_t *from, size_t n)
{
	memmove(to, from, n);
}
#endif

/* The last bytes in ascending order, in the largest units that the address allows. */
UNSEEN static void copy_tail(uint8_t *to, const uint8_t *from, size_t n)
{
	uint8_t tail[TAIL_BYTES];
	size_t i = 0;

	for (i = 0; i < n; i++)
		tail[i] = ((const volatile uint8_t *)from)[i];
	for (i = 0; i < n;) {
		uintptr_t p = (uintptr_t)(to + i);

		if (n - i >= 8 && p % 8 == 0) {
			uint64_t v;

			__builtin_memcpy(&v, tail + i, 8);
			*(volatile uint64_t *)(void *)(to + i) = v;
			i += 8;
		} else if (n - i >= 4 && p % 4 == 0) {
			uint32_t v;

			__builtin_memcpy(&v, tail + i, 4);
			*(volatile uint32_t *)(void *)(to + i) = v;
			i += 4;
		} else {
			*(volatile uint8_t *)(to + i) = tail[i];
			i++;
		}
	}
}

void copy_bytes(void *to, const void *from, size_t n)
{
	uint8_t tail[TAIL_BYTES];
	size_t body = n > TAIL_BYTES ? n - TAIL_BYTES : 0;

	/* The body may overwrite the tail's source. */
	copy_tail(tail, (const uint8_t *)from + body, n - body);
	if (body)
		copy_body(to, from, body);
	atomic_signal_fence(memory_order_release); /* x86 keeps stores in order */
#if !defined(__x86_64__)
	atomic_thread_fence(memory_order_release);
#endif
	copy_tail((uint8_t *)to + body, tail, n - body);
}

/* The pieces of REQ's memory that hold [offset, offset + length), as an iovec. */
static int slice(const struct wire_req *req, uint64_t offset, uint64_t length, struct iovec *iov)
{
	int num = 0;

	for (uint32_t i = 0; i < req->num_mem && length; i++) {
		uint64_t n = req->mem[i].len;

		if (offset >= n) {
			offset -= n;
			continue;
		}
		n -= offset;
		if (n > length)
			n = length;
		iov[num].iov_base = (void *)(uintptr_t)(req->mem[i].addr + offset);
		iov[num++].iov_len = n;
		length -= n;
		offset = 0;
	}
	return num;
}

static void iov_advance(struct iovec **iov, int *num, size_t n)
{
	while (*num && n >= (*iov)->iov_len) {
		n -= (*iov)->iov_len;
		++*iov;
		--*num;
	}
	if (*num) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + n;
		(*iov)->iov_len -= n;
	}
}

/* All of it, or a positive errno. System calls by number: ThreadSanitizer knows the functions. */
static int move_remote(uint32_t pid, bool write, struct iovec *local, int num_local,
		       struct iovec *remote, int num_remote)
{
	while (num_local && num_remote) {
		ssize_t n = syscall(write ? SYS_process_vm_writev : SYS_process_vm_readv, pid,
				    local, num_local, remote, num_remote, 0);

		if (n <= 0)
			return n ? errno : EFAULT;
		iov_advance(&local, &num_local, n);
		iov_advance(&remote, &num_remote, n);
	}
	return 0;
}

int copy_from_requester(const struct wire_req *req, uint64_t offset, void *addr, uint64_t length)
{
	struct iovec remote[WIRE_MAX_SGE], local[2];
	uint8_t tail[TAIL_BYTES], *to = addr;
	uint64_t body = length > TAIL_BYTES ? length - TAIL_BYTES : 0;
	int num, ret;

	if (!length)
		return 0;
	if (req->num_inline) {
		copy_bytes(addr, req->inl + offset, length);
		return 0;
	}
	num = slice(req, offset, length, remote);
	if (!req->pid) {
		for (int i = 0; i < num; to += remote[i++].iov_len)
			copy_bytes(to, remote[i].iov_base, remote[i].iov_len);
		return 0;
	}
	local[0] = (struct iovec){ addr, body };
	local[1] = (struct iovec){ tail, length - body };
	ret = move_remote(req->pid, false, body ? local : local + 1, body ? 2 : 1, remote, num);
	if (!ret)
		copy_bytes(to + body, tail, length - body);
	return ret;
}

int copy_to_requester(const struct wire_req *req, const void *addr, uint64_t length)
{
	struct iovec remote[WIRE_MAX_SGE], local = { (void *)(uintptr_t)addr, length };
	const uint8_t *from = addr;
	int num = slice(req, 0, length, remote);

	if (req->pid)
		return move_remote(req->pid, true, &local, length ? 1 : 0, remote, num);
	for (int i = 0; i < num; from += remote[i++].iov_len)
		copy_bytes(remote[i].iov_base, from, remote[i].iov_len);
	return 0;
}
