/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Address handles: an attribute kept until a UD send copies it.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "fake.h"

struct ibv_ah *fake_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fake_device *dev = context_device(pd->context);
	struct fake_ah *ah;

	if (fake_fails(dev, FAKE_FAIL_CREATE_AH))
		return NULL;
	if (attr->port_num != 1 || !attr->is_global ||
	    !fake_gid_index_valid(dev, attr->grh.sgid_index)) {
		errno = EINVAL;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->pd = to_fake_pd(pd);
	ah->attr = *attr;
	atomic_fetch_add(&ah->pd->users, 1);
	fake_knob_add(dev->ctl, FAKE_LIVE_AHS, 1);
	return &ah->ah;
}

int fake_destroy_ah(struct ibv_ah *ibah)
{
	struct fake_ah *ah = to_fake_ah(ibah);

	atomic_fetch_sub(&ah->pd->users, 1);
	fake_knob_add(context_device(ibah->context)->ctl, FAKE_LIVE_AHS, -1);
	free(ah);
	return 0;
}
