/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What bond0 says it can do: what every member can, with the primary's identity. Queue depths leave
 * room for what the bond itself puts into the members' queues.
 */
#include <errno.h>
#include <string.h>

#include "bond.h"
#include "caps.h"
#include "objects.h"

#define MIN_OF(to, from, field) \
	((to)->field = (from)->field < (to)->field ? (from)->field : (to)->field)

static void caps_min(struct ibv_device_attr *to, const struct ibv_device_attr *from)
{
	MIN_OF(to, from, max_mr_size);
	to->page_size_cap &= from->page_size_cap;
	MIN_OF(to, from, max_qp);
	MIN_OF(to, from, max_qp_wr);
	/* What path 0 alone serves (atomics, SRQ, windows, multicast) stays the primary's. */
	MIN_OF(to, from, max_sge);
	MIN_OF(to, from, max_cq);
	MIN_OF(to, from, max_cqe);
	MIN_OF(to, from, max_mr);
	MIN_OF(to, from, max_pd);
	MIN_OF(to, from, max_qp_rd_atom);
	MIN_OF(to, from, max_res_rd_atom);
	MIN_OF(to, from, max_qp_init_rd_atom);
}

void bond_caps(const struct bond_context *bctx, struct ibv_device_attr *attr)
{
	unsigned int i;

	*attr = bctx->member[0].attr.orig_attr;
	for (i = 1; i < bctx->nmembers; i++)
		caps_min(attr, &bctx->member[i].attr.orig_attr);
	attr->max_qp_wr /= BOND_SQ_FACTOR;
	attr->max_cqe /= BOND_SQ_FACTOR;
	if (attr->max_sge > BOND_MAX_SGE)
		attr->max_sge = BOND_MAX_SGE;
	attr->phys_port_cnt = BOND_PORT;
}

int bond_max_cqe(const struct bond_context *bctx)
{
	struct ibv_device_attr attr;

	bond_caps(bctx, &attr);
	return attr.max_cqe;
}

int bond_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct bond_context *bctx = to_bond_context(ctx);
	struct ibv_device_attr_ex full;

	if (input && input->comp_mask)
		return EINVAL;
	if (attr_size < sizeof(attr->orig_attr))
		return EINVAL;
	full = bctx->member[0].attr;
	bond_caps(bctx, &full.orig_attr);
	/* Not offered by bond0, whatever the primary can do. */
	memset(&full.tso_caps, 0, sizeof(full.tso_caps));
	memset(&full.rss_caps, 0, sizeof(full.rss_caps));
	memset(&full.tm_caps, 0, sizeof(full.tm_caps));
	full.max_wq_type_rq = 0;
	full.completion_timestamp_mask = 0;
	full.hca_core_clock = 0;
	full.raw_packet_caps = 0;
	full.max_dm_size = 0;
	memcpy(attr, &full, attr_size < sizeof(full) ? attr_size : sizeof(full));
	return 0;
}

/* ---- port ---- */

/* What a lane is said to do, Mbit/s: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR. */
static uint32_t lane_mbps(uint8_t speed)
{
	switch (speed) {
	case 1: return 2500;
	case 2: return 5000;
	case 4: return 10000;
	case 8: return 10000;
	case 16: return 14000;
	case 32: return 25000;
	case 64: return 50000;
	case 128: return 100000;
	default: return 2500;
	}
}

static unsigned int width_lanes(uint8_t width)
{
	switch (width) {
	case 1: return 1;
	case 2: return 4;
	case 4: return 8;
	case 8: return 12;
	case 16: return 2;
	default: return 1;
	}
}

uint32_t bond_port_mbps(const struct ibv_port_attr *port)
{
	return lane_mbps(port->active_speed) * width_lanes(port->active_width);
}

/* The pair of fields that says @mbps best: the largest that is not more. */
static void port_say_mbps(struct ibv_port_attr *port, uint64_t mbps)
{
	static const uint8_t speeds[] = { 1, 2, 4, 16, 32, 64, 128 };
	static const uint8_t widths[] = { 1, 16, 2, 4, 8 };
	uint64_t best = 0;
	unsigned int i, j;

	for (i = 0; i < sizeof(speeds); i++) {
		for (j = 0; j < sizeof(widths); j++) {
			uint64_t this = (uint64_t)lane_mbps(speeds[i]) * width_lanes(widths[j]);

			if (this > mbps || this <= best)
				continue;
			best = this;
			port->active_speed = speeds[i];
			port->active_width = widths[j];
		}
	}
}

int bond_query_port(struct ibv_context *ctx, uint8_t port_num, struct ibv_port_attr *attr)
{
	struct bond_context *bctx = to_bond_context(ctx);
	struct ibv_port_attr other;
	uint64_t mbps;
	unsigned int i;
	int ret;

	ret = ibv_query_port(bond_primary(bctx), port_num, attr);
	if (ret || port_num != BOND_PORT || bctx->nmembers < 2)
		return ret;
	mbps = bond_port_mbps(attr);
	for (i = 1; i < bctx->nmembers; i++)
		if (!ibv_query_port(bctx->member[i].ctx, BOND_PORT, &other) &&
		    other.state == IBV_PORT_ACTIVE)
			mbps += bond_port_mbps(&other);
	if (mbps > bond_port_mbps(attr))
		port_say_mbps(attr, mbps);
	return 0;
}

int bond_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values)
{
	return ibv_query_rt_values_ex(bond_primary(to_bond_context(ctx)), values);
}
