/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Linked without libibverbs, so without __verbs_log(), as before rdma-core 37. */
#include "log.h"

int main(void)
{
	bond_info("said to nobody: %d", 1);
	bond_dbg("said to nobody: %d", 2);
	return 0;
}
