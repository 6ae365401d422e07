/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a fake device says of itself, from its attributes in the control file. GIDs and P_Keys are
 * not here: libibverbs reads those from sysfs.
 */
#include <endian.h>
#include <string.h>

#include "fake.h"

static void fill_device_attr(struct fake_device *dev, struct ibv_device_attr *a)
{
	struct fake_ctl_dev *ctl = dev->ctl;

	strcpy(a->fw_ver, "fake-1.0");
	memcpy(&a->node_guid, ctl->gid[0] + 8, 8);
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 4096;
	a->vendor_id = 0xfa4e;
	a->vendor_part_id = 1;
	a->max_qp = fake_knob_get(ctl, FAKE_MAX_QP);
	a->max_qp_wr = fake_knob_get(ctl, FAKE_MAX_QP_WR);
	a->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT |
			      IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_CURR_QP_STATE_MOD |
			      fake_knob_get(ctl, FAKE_DEVICE_CAP_FLAGS);
	a->max_sge = fake_knob_get(ctl, FAKE_MAX_SGE);
	a->max_sge_rd = a->max_sge;
	a->max_cq = fake_knob_get(ctl, FAKE_MAX_CQ);
	a->max_cqe = fake_knob_get(ctl, FAKE_MAX_CQE);
	a->max_mr = fake_knob_get(ctl, FAKE_MAX_MR);
	a->max_pd = fake_knob_get(ctl, FAKE_MAX_PD);
	a->max_qp_rd_atom = fake_knob_get(ctl, FAKE_MAX_RD_ATOM);
	a->max_res_rd_atom = a->max_qp_rd_atom * a->max_qp;
	a->max_qp_init_rd_atom = a->max_qp_rd_atom;
	a->atomic_cap = fake_knob_get(ctl, FAKE_ATOMIC_CAP);
	a->max_ah = 1 << 16;
	a->max_srq = fake_knob_get(ctl, FAKE_MAX_SRQ);
	a->max_srq_wr = fake_knob_get(ctl, FAKE_MAX_SRQ_WR);
	a->max_srq_sge = a->max_sge;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
}

int fake_query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		      struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = { 0 };

	if (input && input->comp_mask)
		return EINVAL;
	fill_device_attr(context_device(context), &all.orig_attr);
	all.completion_timestamp_mask = UINT64_MAX;
	all.hca_core_clock = 1000000; /* kHz: nanoseconds */
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	all.phys_port_cnt_ex = 1;
	memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

int fake_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct fake_ctl_dev *ctl = context_device(context)->ctl;
	bool down = fake_knob_get(ctl, FAKE_LINK_DOWN);

	if (port != 1)
		return EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->phys_state = down ? 3 : 5; /* disabled, link up */
	attr->max_mtu = IBV_MTU_4096;
	attr->active_mtu = fake_knob_get(ctl, FAKE_ACTIVE_MTU);
	attr->gid_tbl_len = FAKE_MAX_GIDS;
	attr->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	attr->max_msg_sz = fake_knob_get(ctl, FAKE_MAX_MSG_SZ);
	attr->pkey_tbl_len = 1;
	attr->active_width = fake_knob_get(ctl, FAKE_ACTIVE_WIDTH);
	attr->active_speed = fake_knob_get(ctl, FAKE_ACTIVE_SPEED);
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	attr->flags = 1 << 0; /* a GRH is needed */
	return 0;
}
