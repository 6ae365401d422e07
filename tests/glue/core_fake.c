/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A libibverbs of one layout as the loader sees it: its version nodes (the map is made by CMake)
 * and the symbols that tell layouts apart, which do nothing but say that they were called.
 */
#include <stdio.h>

#include "layout.h"

struct verbs_device_ops {
	const char *name;
};

#define EXPORT __attribute__((visibility("default")))
#define SAYS(name) \
	EXPORT void name(void); \
	void name(void) \
	{ \
		puts("real " #name); \
	}

SAYS(ibv_reg_dmabuf_mr)
GLUE_SINCE_35(SAYS(ibv_import_dm))
GLUE_SINCE_36(SAYS(ibv_query_qp_data_in_order))
GLUE_SINCE_59(SAYS(ibv_reg_mr_ex))
GLUE_SINCE_62(SAYS(ibv_query_port_speed))
GLUE_SINCE_64(SAYS(ibv_alloc_buf))
GLUE_SINCE_65(SAYS(ibv_create_comp_cntr))
SAYS(verbs_open_device)

EXPORT void GLUE_REGISTER_SYMBOL(const struct verbs_device_ops *ops);
void GLUE_REGISTER_SYMBOL(const struct verbs_device_ops *ops)
{
	printf("real %s %s\n", GLUE_REGISTER_NAME, ops->name);
}
