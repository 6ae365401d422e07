/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * See pair.h. The leader knows both sides' members and decides: path 0 joins the primaries, the
 * others pair by subnet, else by index; unequal counts wrap. Each further path is an ordinary RC
 * QP with the application's settings.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "caps.h"
#include "log.h"
#include "objects.h"
#include "pair.h"
#include "path.h"
#include "peer.h"

enum {
	ROCE_HOP_LIMIT = 64,
	IPV4_SUBNET_BYTES = 15,		/* ::ffff:a.b.c of an IPv4-mapped GID */
	IPV6_SUBNET_BYTES = 8,
};

static bool gid_is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

/* The GID that a member is reached by: of the kind that the application chose on the primary. */
static int member_gid(struct bond_qp *qp, unsigned int member, struct ibv_gid_entry *gid)
{
	struct ibv_context *ctx = qp->bctx->member[member].ctx;
	struct ibv_gid_entry model, entry;
	struct ibv_port_attr port;
	bool found = false;
	int i, err;

	err = ibv_query_gid_ex(bond_primary(qp->bctx), BOND_PORT, qp->attr.ah_attr.grh.sgid_index,
			       &model, 0);
	if (err)
		return err;
	if (!member) {
		*gid = model;
		return 0;
	}
	err = ibv_query_port(ctx, BOND_PORT, &port);
	if (err)
		return err;
	for (i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(ctx, BOND_PORT, i, &entry, 0) ||
		    entry.gid_type != model.gid_type)
			continue;
		if (gid_is_ipv4(entry.gid.raw) == gid_is_ipv4(model.gid.raw)) {
			*gid = entry;
			return 0;
		}
		if (!found)
			*gid = entry;
		found = true;
	}
	return found ? 0 : ENOENT;
}

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static enum ibv_mtu mtu_of_bytes(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && mtu_bytes(mtu) > bytes)
		mtu--;
	return mtu;
}

void pair_describe(struct bond_qp *qp, struct wire_qp_desc *desc)
{
	unsigned int i;

	memset(desc, 0, sizeof(*desc));
	desc->nmembers = qp->bctx->nmembers;
	desc->has_srq = !!qp->vqp.qp.srq;
	desc->max_dest_rd_atomic = qp->attr.max_dest_rd_atomic;
	desc->access_flags = qp->attr.qp_access_flags;
	desc->max_recv_wr = qp->max_recv_wr;
	desc->pd_id = qp->pd_id;
	notify_describe(qp, desc);
	for (i = 0; i < desc->nmembers; i++) {
		struct wire_member *member = &desc->members[i];
		struct ibv_port_attr port;
		struct ibv_gid_entry gid;

		/* A member without a usable GID or port stays in the list, with speed 0. */
		if (member_gid(qp, i, &gid) ||
		    ibv_query_port(qp->bctx->member[i].ctx, BOND_PORT, &port) ||
		    port.state != IBV_PORT_ACTIVE)
			continue;
		memcpy(member->gid, gid.gid.raw, sizeof(member->gid));
		member->mtu = mtu_bytes(port.active_mtu);
		member->speed_mbps = bond_port_mbps(&port);
	}
}

/* ---- which with which ---- */

static bool same_subnet(const uint8_t a[16], const uint8_t b[16])
{
	if (gid_is_ipv4(a) != gid_is_ipv4(b))
		return false;
	return !memcmp(a, b, gid_is_ipv4(a) ? IPV4_SUBNET_BYTES : IPV6_SUBNET_BYTES);
}

/* Are all of one side's members in subnets of their own? Else the subnet says nothing. */
static bool subnets_differ(const struct wire_qp_desc *desc)
{
	unsigned int i, j;

	for (i = 0; i < desc->nmembers; i++)
		for (j = 0; j < i; j++)
			if (same_subnet(desc->members[i].gid, desc->members[j].gid))
				return false;
	return true;
}

static unsigned int subnet_partner(const struct wire_qp_desc *other, const uint8_t gid[16],
				   unsigned int otherwise)
{
	unsigned int j;

	for (j = 0; j < other->nmembers; j++)
		if (same_subnet(other->members[j].gid, gid))
			return j;
	return otherwise;
}

/* Path i's two members. The larger side's count is the number of paths. */
static void pair_choose(const struct wire_qp_desc *mine, const struct wire_qp_desc *peer,
			unsigned int i, struct wire_path *path)
{
	bool more = mine->nmembers >= peer->nmembers;
	const struct wire_qp_desc *large = more ? mine : peer, *small = more ? peer : mine;
	unsigned int a = i % large->nmembers, b = a % small->nmembers;

	if (a && subnets_differ(large) && subnets_differ(small))
		b = subnet_partner(small, large->members[a].gid, b);
	path->member = more ? a : b;
	path->peer_member = more ? b : a;
}

/* ---- QPs ---- */

static int path_init_qp(struct bond_qp *qp, struct ibv_qp *mqp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = BOND_PORT,
				    .qp_access_flags = qp->attr.qp_access_flags };

	return ibv_modify_qp(mqp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						 IBV_QP_ACCESS_FLAGS);
}

/* Makes path i's QP on a member, in INIT. */
static int path_make(struct bond_qp *qp, unsigned int i, unsigned int member,
		     struct wire_path *wire)
{
	struct mcq *mcq = bond_cq_member(to_bond_cq(qp->vqp.qp.send_cq), member);
	struct mcq *recv_mcq = mcq ? bond_cq_member(to_bond_cq(qp->vqp.qp.recv_cq), member) : NULL;
	struct ibv_qp_init_attr attr = {
		.qp_context = qp, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = qp->max_send_wr * BOND_SQ_FACTOR + 1, .max_recv_wr = 1,
			 .max_send_sge = qp->max_send_sge, .max_recv_sge = 1 } };
	uint32_t deepest = qp->bctx->member[member].attr.orig_attr.max_qp_wr;
	struct ibv_qp *mqp;
	int err, receives;

	if (!recv_mcq)
		return errno ? errno : ENOMEM;
	receives = notify_receives_take(qp, recv_mcq);
	if (attr.cap.max_send_wr > deepest)
		attr.cap.max_send_wr = deepest;
	attr.send_cq = mcq->cq;
	attr.recv_cq = recv_mcq->cq;
	if (receives)
		attr.cap.max_recv_wr = receives;
	mqp = ibv_create_qp(bond_pd_real(qp->vqp.qp.pd)->mpd[member], &attr);
	if (!mqp) {
		err = errno ? errno : ENOMEM;
		goto err_give_receives;
	}
	err = path_init_qp(qp, mqp);
	if (err)
		goto err_destroy_mqp;
	err = path_open(&qp->path[i], qp, i, member, mqp, mcq, attr.cap.max_send_wr - 1,
			qp->path[0].mask + 1);
	if (err)
		goto err_destroy_mqp;
	qp->path[i].recv_mcq = recv_mcq;
	qp->path[i].mark_receives = receives;
	err = notify_post_receives(&qp->path[i]);
	if (err)
		goto err_close_path;
	err = bond_member_set_path(qp->bctx, member, mqp->qp_num, &qp->path[i]);
	if (err)
		goto err_close_path;
	wire->member = member;
	wire->qpn = mqp->qp_num;
	if (auth_random(&wire->psn, sizeof(wire->psn)))
		wire->psn = mqp->qp_num;
	wire->psn &= 0xffffff;
	qp->path[i].psn = wire->psn;
	return 0;

err_close_path:
	path_close(&qp->path[i]);
err_destroy_mqp:
	ibv_destroy_qp(mqp);
	memset(&qp->path[i], 0, sizeof(qp->path[i]));
	qp->path[i].broken = true;
err_give_receives:
	notify_receives_give(recv_mcq, receives);
	return err;
}

/* A marker may find no receive for a while; the lead says when it is time to give up. */
static int path_rts(struct bond_qp *qp, struct path *path)
{
	const struct bond_config *cfg = qp->bctx->cfg;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = path->psn,
		.timeout = cfg->timeout != CONFIG_AUTO ? cfg->timeout : qp->attr.timeout,
		.retry_cnt = cfg->retry_cnt != CONFIG_AUTO ? cfg->retry_cnt : qp->attr.retry_cnt,
		.rnr_retry = BOND_RNR_FOREVER, .max_rd_atomic = qp->attr.max_rd_atomic };

	return ibv_modify_qp(path->mqp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Connects path i to the peer's QP; to RTS too where the application's QP is there. */
static int path_connect(struct bond_qp *qp, struct path *path, const struct wire_qp_desc *peer,
			const struct wire_path *wire)
{
	const struct bond_config *cfg = qp->bctx->cfg;
	const struct wire_member *to = &peer->members[wire->member];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = wire->qpn, .rq_psn = wire->psn,
		.max_dest_rd_atomic = qp->attr.max_dest_rd_atomic,
		.min_rnr_timer = qp->attr.min_rnr_timer,
		.ah_attr = { .is_global = 1, .port_num = BOND_PORT,
			     .sl = cfg->sl != CONFIG_AUTO ? cfg->sl : qp->attr.ah_attr.sl } };
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	uint32_t mtu = mtu_bytes(qp->attr.path_mtu);
	int err;

	err = member_gid(qp, path->member, &gid);
	if (!err)
		err = ibv_query_port(qp->bctx->member[path->member].ctx, BOND_PORT, &port);
	if (err)
		return err;
	if (mtu_bytes(port.active_mtu) < mtu)
		mtu = mtu_bytes(port.active_mtu);
	attr.path_mtu = mtu_of_bytes(to->mtu < mtu ? to->mtu : mtu);
	attr.ah_attr.grh = qp->attr.ah_attr.grh;
	memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof(to->gid));
	attr.ah_attr.grh.sgid_index = gid.gid_index;
	if (!attr.ah_attr.grh.hop_limit)
		attr.ah_attr.grh.hop_limit = ROCE_HOP_LIMIT;
	if (cfg->traffic_class != CONFIG_AUTO)
		attr.ah_attr.grh.traffic_class = cfg->traffic_class;
	err = ibv_modify_qp(path->mqp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	if (!err && qp->state == IBV_QPS_RTS)
		err = path_rts(qp, path);
	if (err)
		return err;
	path->peer_member = wire->member;
	path->weight = to->speed_mbps < bond_port_mbps(&port) ? to->speed_mbps :
							       bond_port_mbps(&port);
	return 0;
}

/* By the address that the application gave: its own, and its own number. */
static bool qp_is_own_peer(struct bond_qp *qp)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct ibv_gid_entry own;

	return qp->attr.dest_qp_num == qp->vqp.qp.qp_num &&
	       !ibv_query_gid_ex(bond_primary(qp->bctx), BOND_PORT, ah->grh.sgid_index, &own, 0) &&
	       !memcmp(own.gid.raw, ah->grh.dgid.raw, sizeof(own.gid.raw));
}

static bool qp_is_dead(struct bond_qp *qp)
{
	bool dead;

	bond_lock(&qp->sq_lock);
	dead = qp->error || qp->state == IBV_QPS_ERR;
	bond_unlock(&qp->sq_lock);
	return dead;
}

static int pair_begin(struct bond_qp *qp, const struct wire_qp_desc *peer)
{
	bool busy = false, own = qp_is_own_peer(qp);
	unsigned int i;

	if (!peer->nmembers)
		return EINVAL;
	/* Nothing may land for a QP that takes nothing on path 0. */
	if (qp_is_dead(qp))
		return ECANCELED;
	bond_lock(&qp->sq_lock);
	qp->peer_access = peer->access_flags;
	qp->to_itself = own;
	/* An earlier pairing's work has to end first. */
	for (i = 1; i < qp->npaths_made; i++)
		busy |= qp->path[i].head != qp->path[i].tail;
	bond_unlock(&qp->sq_lock);
	if (busy)
		return EBUSY;
	bond_peer_drop_paths(qp);
	return 0;
}

/*
 * npaths_made and what poll may look at appear together. If the QP has failed meanwhile, nobody
 * fenced the new paths: they go.
 */
static int paths_publish(struct bond_qp *qp, unsigned int made)
{
	bool dead;

	bond_lock(&qp->sq_lock);
	qp->npaths_made = made;
	dead = qp->error || qp->state == IBV_QPS_ERR;
	bond_unlock(&qp->sq_lock);
	if (dead)
		bond_peer_drop_paths(qp);
	return dead ? ECANCELED : 0;
}

static void path_zero(struct bond_qp *qp, struct wire_path *wire)
{
	*wire = (struct wire_path){ .qpn = qp->vqp.qp.qp_num, .psn = qp->attr.rq_psn };
}

static int pair_slots(struct bond_qp *qp)
{
	if (!qp->slots)
		qp->slots = calloc(1, sizeof(*qp->slots));
	if (!qp->local_slots)
		qp->local_slots = calloc(1, sizeof(*qp->local_slots));
	notify_open(qp);
	return qp->slots && qp->local_slots ? 0 : ENOMEM;
}

int pair_lead(struct bond_qp *qp, const struct wire_qp_desc *peer, struct wire_qp_desc *mine)
{
	unsigned int i, n;
	int err;

	err = pair_begin(qp, peer);
	if (!err)
		err = pair_slots(qp);
	if (err)
		return err;
	pair_describe(qp, mine);
	n = mine->nmembers > peer->nmembers ? mine->nmembers : peer->nmembers;
	notify_peer(qp, peer);
	n *= qp->bctx->cfg->qps_per_member;
	if (n > BOND_MAX_PATHS)
		n = BOND_MAX_PATHS;
	path_zero(qp, &mine->paths[0]);
	for (i = 1; i < n; i++) {
		struct wire_path *wire = &mine->paths[i];

		qp->path[i].broken = true;
		pair_choose(mine, peer, i, wire);
		/* A port that is down on either side: the path is not made. */
		if (!mine->members[wire->member].mtu || !peer->members[wire->peer_member].mtu)
			continue;
		err = path_make(qp, i, wire->member, wire);
		if (err)
			bond_info("path %u of QP 0x%x on %s: %s", i, qp->vqp.qp.qp_num,
				  qp->bctx->member[wire->member].name, strerror(err));
	}
	mine->npaths = n;
	notify_describe(qp, mine);
	return paths_publish(qp, n);
}

int pair_follow(struct bond_qp *qp, const struct wire_qp_desc *peer, struct wire_qp_desc *mine,
		uint32_t *ok_mask)
{
	unsigned int i, n = peer->npaths < BOND_MAX_PATHS ? peer->npaths : BOND_MAX_PATHS;
	int err;

	err = pair_begin(qp, peer);
	if (!err)
		err = pair_slots(qp);
	if (err)
		return err;
	pair_describe(qp, mine);
	notify_peer(qp, peer);
	path_zero(qp, &mine->paths[0]);
	*ok_mask = 1;
	for (i = 1; i < n; i++) {
		const struct wire_path *wire = &peer->paths[i];

		qp->path[i].broken = true;
		if (!wire->qpn || wire->member >= peer->nmembers ||
		    wire->peer_member >= qp->bctx->nmembers)
			continue;
		mine->paths[i].peer_member = wire->member;
		err = path_make(qp, i, wire->peer_member, &mine->paths[i]);
		if (!err)
			err = path_connect(qp, &qp->path[i], peer, wire);
		if (!err)
			*ok_mask |= 1u << i;
		else
			bond_info("path %u of QP 0x%x: %s", i, qp->vqp.qp.qp_num, strerror(err));
	}
	mine->npaths = n;
	notify_describe(qp, mine);
	return paths_publish(qp, n ? n : 1);
}

int pair_answer(struct bond_qp *qp, const struct wire_qp_desc *peer, uint32_t *ok_mask)
{
	unsigned int i;
	int err;

	*ok_mask = 1;
	if (qp_is_dead(qp))
		return ECANCELED;
	notify_peer(qp, peer);
	for (i = 1; i < qp->npaths_made && i < peer->npaths; i++) {
		const struct wire_path *wire = &peer->paths[i];

		if (!qp->path[i].mqp || !wire->qpn || wire->member >= peer->nmembers)
			continue;
		err = path_connect(qp, &qp->path[i], peer, wire);
		if (!err)
			*ok_mask |= 1u << i;
		else
			bond_info("path %u of QP 0x%x: %s", i, qp->vqp.qp.qp_num, strerror(err));
	}
	return 0;
}

static double path_weight(const struct bond_qp *qp, unsigned int i)
{
	const struct bond_config *cfg = qp->bctx->cfg;
	unsigned int member = qp->bctx->member[qp->path[i].member].spec;

	if (cfg->num_weights)
		return cfg->weights[member] ? cfg->weights[member] : 1;
	return qp->path[i].weight ? qp->path[i].weight : 1;
}

void pair_ready(struct bond_qp *qp, uint32_t path_mask)
{
	struct ibv_port_attr port;
	unsigned int i, usable = 0;

	if (!qp->path[0].weight && !ibv_query_port(bond_primary(qp->bctx), BOND_PORT, &port))
		qp->path[0].weight = bond_port_mbps(&port);
	bond_lock(&qp->sq_lock);
	if (qp->error) {
		bond_unlock(&qp->sq_lock);
		return;
	}
	sched_init(&qp->sched);
	for (i = 0; i < qp->npaths_made; i++) {
		qp->path[i].broken = i && !(path_mask & 1u << i && qp->path[i].mqp);
		if (qp->path[i].broken)
			continue;
		sched_path_start(&qp->sched, i, path_weight(qp, i));
		qp->npaths = i + 1;
		usable++;
	}
	if (usable > 1 && !qp->spreading) {
		/* What is in flight now is in no slot. */
		qp->spread_from = qp->sq_tail;
		qp->busy |= BUSY_SPREAD_PENDING;
		bond_peer_spread(qp);
	}
	bond_unlock(&qp->sq_lock);
	bond_dbg("QP 0x%x: %u paths", qp->vqp.qp.qp_num, usable);
}

/* ---- from modify.c and qp.c ---- */

void bond_peer_rts(struct bond_qp *qp)
{
	unsigned int i;

	for (i = 1; i < qp->npaths_made; i++) {
		struct path *path = &qp->path[i];
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		if (!path->mqp || ibv_query_qp(path->mqp, &attr, IBV_QP_STATE, &init) ||
		    attr.qp_state != IBV_QPS_RTR || !path_rts(qp, path))
			continue;
		bond_info("path %u of QP 0x%x cannot be used", i, qp->vqp.qp.qp_num);
		bond_lock(&qp->sq_lock);
		path->broken = true;
		sched_path_stop(&qp->sched, i);
		bond_unlock(&qp->sq_lock);
	}
}

/* Others may still poll the QP: each line is of one moment. */
static void paths_log(struct bond_qp *qp)
{
	struct qp_stats stats;
	uint64_t pieces, bytes;
	double rate;
	unsigned int i;

	bond_lock(&qp->sq_lock);
	stats = qp->stats;
	bond_unlock(&qp->sq_lock);
	bond_dbg("QP 0x%x: %llu WRs spread, %llu on the lead (%llu without keys), %llu held, "
		 "%llu for a new cut", qp->vqp.qp.qp_num, (unsigned long long)stats.spread,
		 (unsigned long long)stats.lead, (unsigned long long)stats.no_key,
		 (unsigned long long)stats.held, (unsigned long long)stats.drained);
	for (i = 0; i < qp->npaths_made; i++) {
		bond_lock(&qp->sq_lock);
		pieces = qp->path[i].pieces;
		bytes = qp->path[i].bytes;
		rate = qp->sched.path[i].rate;
		bond_unlock(&qp->sq_lock);
		bond_dbg("  path %u on %s: %llu pieces, %llu bytes, %.1f MB/s", i,
			 qp->bctx->member[qp->path[i].member].name, (unsigned long long)pieces,
			 (unsigned long long)bytes, rate * 1e3);
	}
}

void bond_peer_drop_paths(struct bond_qp *qp)
{
	unsigned int i, made = qp->npaths_made;

	/* bond_peer_wait() looks without a lock. */
	__atomic_store_n(&qp->paths_settled, false, __ATOMIC_RELEASE);
	if (made == 1)
		return;
	paths_log(qp);
	notify_end(qp);
	/* Whoever polls must be done with a path before its QP goes. */
	bond_lock(&qp->sq_lock);
	qp->npaths = qp->npaths_made = 1;
	bond_unlock(&qp->sq_lock);
	for (i = 1; i < made; i++)
		if (qp->path[i].mqp)
			bond_member_set_path(qp->bctx, qp->path[i].member,
					     qp->path[i].mqp->qp_num, NULL);
	bond_cq_forget_paths(to_bond_cq(qp->vqp.qp.send_cq));
	if (qp->vqp.qp.recv_cq != qp->vqp.qp.send_cq)
		bond_cq_forget_paths(to_bond_cq(qp->vqp.qp.recv_cq));
	for (i = 1; i < made; i++)
		if (qp->path[i].mqp)
			ibv_destroy_qp(qp->path[i].mqp);
	bond_lock(&qp->sq_lock);
	for (i = 1; i < made; i++) {
		if (qp->path[i].mqp) {
			path_flush(&qp->path[i]);
			path_close(&qp->path[i]);
			notify_receives_give(qp->path[i].recv_mcq, qp->path[i].mark_receives);
		}
		memset(&qp->path[i], 0, sizeof(qp->path[i]));
	}
	bond_unlock(&qp->sq_lock);
}
