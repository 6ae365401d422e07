/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The one kernel command that libibverbs sends itself and no provider can take over: create a
 * completion channel. libibverbs writes it to the context's cmd_fd, for which fake-run has bound
 * /dev/full, and finds the descriptor in a structure that the command points at.
 *
 * So libibverbs' own reference to write(2), one entry of its relocation table, is pointed at
 * uverbs_write() here; nobody else's write is touched and nothing need be preloaded. What is not
 * that command on that device goes on to the C library, and for the device ends with ENOSPC.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "engine.h"

struct create_channel {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_create_comp_channel cmd;
};

static bool is_our_device(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 7);
}

static ssize_t uverbs_write(int fd, const void *buffer, size_t size)
{
	struct ib_uverbs_create_comp_channel_resp *resp;
	struct create_channel req;
	int channel_fd;

	if (size != sizeof(req))
		return write(fd, buffer, size);
	memcpy(&req, buffer, sizeof(req));
	if (req.hdr.command != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL || !is_our_device(fd))
		return write(fd, buffer, size);
	channel_fd = event_create();
	if (channel_fd < 0)
		return -1;
	resp = (void *)(uintptr_t)req.cmd.response;
	resp->fd = channel_fd;
	return size;
}

struct table {
	const ElfW(Sym) *sym;
	const char *str;
	const ElfW(Rela) *rela[2];
	size_t rela_bytes[2];
};

/* Where the dynamic section's pointers are relative to the object they are small. */
static uintptr_t absolute(uintptr_t base, uintptr_t p)
{
	return p < base ? base + p : p;
}

static void read_dynamic(uintptr_t base, const ElfW(Dyn) *dyn, struct table *t)
{
	for (; dyn->d_tag != DT_NULL; dyn++) {
		uintptr_t p = absolute(base, dyn->d_un.d_ptr);

		switch (dyn->d_tag) {
		case DT_SYMTAB: t->sym = (void *)p; break;
		case DT_STRTAB: t->str = (void *)p; break;
		case DT_JMPREL: t->rela[0] = (void *)p; break;
		case DT_PLTRELSZ: t->rela_bytes[0] = dyn->d_un.d_val; break;
		case DT_RELA: t->rela[1] = (void *)p; break;
		case DT_RELASZ: t->rela_bytes[1] = dyn->d_un.d_val; break;
		}
	}
}

/* The slot may be in pages that the loader made read-only. */
static int point_at(void **slot, void *target)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)slot & ~(page - 1);

	if (mprotect((void *)start, page, PROT_READ | PROT_WRITE))
		return errno;
	*slot = target;
	return 0;
}

static int redirect_write(uintptr_t base, const struct table *t)
{
	int ret = ENOENT;

	for (int i = 0; i < 2; i++) {
		const ElfW(Rela) *r = t->rela[i];

		for (size_t n = t->rela_bytes[i] / sizeof(*r); r && n; n--, r++) {
			const ElfW(Sym) *sym = &t->sym[ELF64_R_SYM(r->r_info)];

			if (!ELF64_R_SYM(r->r_info) || strcmp(t->str + sym->st_name, "write"))
				continue;
			ret = point_at((void **)(base + r->r_offset), (void *)uverbs_write);
			if (ret)
				return ret;
		}
	}
	return ret;
}

int uverbs_install(void)
{
	struct table t = { 0 };
	struct link_map *map;
	Dl_info info;

	/* The library that runs our contexts, which is not the front that may stand before it. */
	if (!dladdr1((void *)verbs_open_device, &info, (void **)&map, RTLD_DL_LINKMAP))
		return ENOENT;
	read_dynamic(map->l_addr, map->l_ld, &t);
	if (!t.sym || !t.str)
		return ENOENT;
	return redirect_write(map->l_addr, &t);
}
