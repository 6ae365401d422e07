/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Built for one layout: exit 0 if the libibverbs that it got has it, 3 and the reason if not. */
#include <stdio.h>

#include "glue.h"

int main(void)
{
	char why[512] = "";

	if (!glue_layout_check(why, sizeof(why)))
		return 0;
	puts(why);
	return 3;
}
