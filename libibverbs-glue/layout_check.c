/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Is the libibverbs of this process the one that we were built for? The version of its private
 * symbols does not say: it stood at 34 and at 59 over several layouts. Its public version nodes do:
 * each change of layout under one private version came with a new one. So a node that is newer than
 * all known ones means a libibverbs that nobody has looked at, and it is refused.
 *
 * The layouts are in layout.h; a context made with the right one is checked by context.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glue.h"

struct node_mark {
	int since; /* the first layout that has it */
	const char *symbol;
	const char *node;
};

static const struct node_mark marks[] = {
	{ 34, "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ 35, "ibv_import_dm", "IBVERBS_1.13" },
	{ 36, "ibv_query_qp_data_in_order", "IBVERBS_1.14" },
	{ 59, "ibv_reg_mr_ex", "IBVERBS_1.15" },
	{ 62, "ibv_query_port_speed", "IBVERBS_1.16" },
	{ 64, "ibv_alloc_buf", "IBVERBS_1.17" },
	{ 65, "ibv_create_comp_cntr", "IBVERBS_1.18" },
};
enum { NEWEST_NODE = 18 };

/*
 * A handle on the library that verbs_open_device() of this object is bound to: the real one, also
 * where the front is before it and where several copies are loaded.
 */
static void *libibverbs_handle(Dl_info *info, struct link_map **map)
{
	if (!dladdr1((void *)verbs_open_device, info, (void **)map, RTLD_DL_LINKMAP) ||
	    !info->dli_fname)
		return NULL;
	return dlopen(info->dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

static int marks_check(void *handle, const char *path, char *why, size_t why_bytes)
{
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const struct node_mark *mark = &marks[i];
		bool expected = mark->since <= BOND_LAYOUT;
		bool found = dlvsym(handle, mark->symbol, mark->node) != NULL;

		if (found == expected)
			continue;
		snprintf(why, why_bytes,
			 "%s is another libibverbs than rdma-bond was built for (layout %d): it %s "
			 "%s of %s; build rdma-bond against this one",
			 path, BOND_LAYOUT, found ? "has" : "lacks", mark->symbol, mark->node);
		return ENOTSUP;
	}
	return 0;
}

/* A public version node that the library defines and that is newer than all known; NULL: none. */
static const char *unknown_node(const struct link_map *map)
{
	static const char known[] = "IBVERBS_1.";
	const ElfW(Verdef) *def = NULL;
	const ElfW(Dyn) *dyn;
	const char *names = NULL, *name;
	size_t count = 0;

	for (dyn = map->l_ld; dyn->d_tag != DT_NULL; dyn++) {
		/* The loader has made some of them absolute and left others as in the file. */
		ElfW(Addr) at = dyn->d_un.d_ptr < map->l_addr ? map->l_addr + dyn->d_un.d_ptr :
								 dyn->d_un.d_ptr;

		if (dyn->d_tag == DT_STRTAB)
			names = (const char *)at;
		else if (dyn->d_tag == DT_VERDEF)
			def = (const ElfW(Verdef) *)at;
		else if (dyn->d_tag == DT_VERDEFNUM)
			count = dyn->d_un.d_val;
	}
	for (; def && names && count--; def = (const void *)((const char *)def + def->vd_next)) {
		const ElfW(Verdaux) *aux = (const void *)((const char *)def + def->vd_aux);

		name = names + aux->vda_name;
		if (!strncmp(name, known, sizeof(known) - 1) &&
		    atoi(name + sizeof(known) - 1) > NEWEST_NODE)
			return name;
	}
	return NULL;
}

int glue_layout_check(char *why, size_t why_bytes)
{
	Dl_info info = { 0 };
	struct link_map *map;
	void *handle = libibverbs_handle(&info, &map);
	const char *node;
	int err;

	if (!handle) {
		snprintf(why, why_bytes, "cannot find the libibverbs of this process");
		return ENOTSUP;
	}
	if (!dlvsym(handle, GLUE_REGISTER_NAME, GLUE_PRIVATE_NODE)) {
		snprintf(why, why_bytes, "%s lacks %s of %s", info.dli_fname, GLUE_REGISTER_NAME,
			 GLUE_PRIVATE_NODE);
		err = ENOTSUP;
	} else {
		err = marks_check(handle, info.dli_fname, why, why_bytes);
	}
	node = err ? NULL : unknown_node(map);
	if (node) {
		snprintf(why, why_bytes,
			 "%s has %s and so is newer than rdma-bond knows; build one that knows it",
			 info.dli_fname, node);
		err = ENOTSUP;
	}
	dlclose(handle);
	return err;
}
