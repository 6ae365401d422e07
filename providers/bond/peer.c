/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * See peer.h. The callbacks at the end run in the control thread, one at a time; they take qp->lock,
 * so bond_peer_down() must be called without it. How paths are made and connected: pair.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth.h"
#include "ctrl.h"
#include "fence.h"
#include "log.h"
#include "objects.h"
#include "order.h"
#include "pair.h"
#include "path.h"
#include "peer.h"
#include "progress.h"

enum { CTRL_PORTS = 4, WAIT_STEP_US = 500 };

/* One per control port; bonds with another port have another channel. */
static struct {
	pthread_mutex_t lock;
	struct {
		struct ctrl *ctrl;
		uint16_t port;
		unsigned int users;	/* 0: the place is free, ctrl and the rest mean nothing */
		char key_file[CONFIG_PATH_SIZE];
	} port[CTRL_PORTS];
} peers = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct ctrl_ops peer_ops;

/* ---- the channel ---- */

/* The child has no threads of ours and touches no member; it must not hold our sockets open. */
static void fork_prepare(void)
{
	unsigned int i;

	pthread_mutex_lock(&peers.lock);
	for (i = 0; i < CTRL_PORTS; i++)
		if (peers.port[i].users)
			ctrl_fork_prepare(peers.port[i].ctrl);
	progress_stop_world();
}

static void fork_parent(void)
{
	unsigned int i;

	progress_start_world();
	for (i = 0; i < CTRL_PORTS; i++)
		if (peers.port[i].users)
			ctrl_fork_parent(peers.port[i].ctrl);
	pthread_mutex_unlock(&peers.lock);
}

/* The parent's contexts keep their dead channels; what the child opens anew gets new ones. */
static void fork_child(void)
{
	unsigned int i;

	progress_fork_child();
	progress_start_world();
	for (i = 0; i < CTRL_PORTS; i++) {
		if (peers.port[i].users)
			ctrl_fork_child(peers.port[i].ctrl);
		peers.port[i].users = 0;
	}
	pthread_mutex_unlock(&peers.lock);
}

static void fork_register(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int peer_ctrl_open(const struct bond_config *cfg, struct ctrl **ctrl)
{
	struct ctrl_config config = { .port = cfg->control_port, .ops = &peer_ops };
	struct auth_key key;
	char why[256];
	int err;

	if (cfg->auth_key_file[0]) {
		err = auth_key_load(cfg->auth_key_file, &key, why, sizeof(why));
		if (err) {
			bond_warn("%s: %s; paths other than the primary's stay unused", cfg->name,
				  why);
			return err;
		}
		config.key = &key;
	}
	*ctrl = ctrl_create(&config);
	err = *ctrl ? 0 : errno;
	if (config.key)
		auth_key_wipe(&key);
	return err;
}

/* The channel of the bond's port, made if there is none. With peers.lock held. */
static int port_get(struct bond_context *bctx)
{
	const struct bond_config *cfg = bctx->cfg;
	unsigned int i, spare = CTRL_PORTS;
	int err;

	for (i = 0; i < CTRL_PORTS; i++) {
		if (!peers.port[i].users)
			spare = i;
		else if (peers.port[i].port == cfg->control_port)
			break;
	}
	if (i == CTRL_PORTS) {
		i = spare;
		if (i == CTRL_PORTS)
			return EMFILE;
		err = peer_ctrl_open(cfg, &peers.port[i].ctrl);
		if (err)
			return err;
		peers.port[i].port = cfg->control_port;
		strcpy(peers.port[i].key_file, cfg->auth_key_file);
	} else if (strcmp(peers.port[i].key_file, cfg->auth_key_file)) {
		/* config.c leaves no such pair; a bond must not run with another's secret. */
		return EKEYREJECTED;
	}
	peers.port[i].users++;
	bctx->ctrl = peers.port[i].ctrl;
	return 0;
}

int bond_peer_context_open(struct bond_context *bctx)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err;

	pthread_once(&once, fork_register);

	/* A mere backup has nothing to agree upon yet. */
	if (bctx->cfg->mode == CONFIG_MODE_BACKUP)
		return 0;
	pthread_mutex_lock(&peers.lock);
	err = port_get(bctx);
	pthread_mutex_unlock(&peers.lock);
	if (err)
		bond_info("%s: no control channel: %s", bctx->cfg->name, strerror(err));
	/* The primary alone is still a device. */
	return 0;
}

void bond_peer_context_close(struct bond_context *bctx)
{
	struct ctrl *ctrl = NULL;
	unsigned int i;

	if (!bctx->ctrl)
		return;
	pthread_mutex_lock(&peers.lock);
	for (i = 0; i < CTRL_PORTS; i++) {
		if (peers.port[i].users && peers.port[i].ctrl == bctx->ctrl &&
		    !--peers.port[i].users)
			ctrl = peers.port[i].ctrl;
	}
	pthread_mutex_unlock(&peers.lock);
	bctx->ctrl = NULL;
	if (ctrl)
		ctrl_destroy(ctrl);
}

void bond_peer_key_withdraw(uint32_t rkey, uint64_t pd_id)
{
	unsigned int i;

	pthread_mutex_lock(&peers.lock);
	for (i = 0; i < CTRL_PORTS; i++)
		if (peers.port[i].users)
			ctrl_key_withdraw(peers.port[i].ctrl, rkey, pd_id);
	pthread_mutex_unlock(&peers.lock);
}

bool bond_peer_key_withdrawing(uint32_t rkey, uint64_t pd_id)
{
	bool yes = false;
	unsigned int i;

	pthread_mutex_lock(&peers.lock);
	for (i = 0; i < CTRL_PORTS && !yes; i++)
		if (peers.port[i].users)
			yes = ctrl_key_withdrawing(peers.port[i].ctrl, rkey, pd_id);
	pthread_mutex_unlock(&peers.lock);
	return yes;
}

/* ---- one QP ---- */

void bond_peer_up(struct bond_qp *qp)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct ctrl_qp_info info = { .qpn = qp->vqp.qp.qp_num,
				     .dest_qpn = qp->attr.dest_qp_num,
				     .generation = qp->generation + 1 };
	struct ibv_gid_entry gid;
	struct ctrl_qp *peer;

	/* Only a GRH names the peer's host. A bond of one member says so: its peer may have several. */
	if (!qp->bctx->ctrl || !ah->is_global || qp->attr.port_num != BOND_PORT ||
	    ibv_query_gid_ex(&qp->bctx->vctx.context, BOND_PORT, ah->grh.sgid_index, &gid, 0))
		return;
	memcpy(info.gid, gid.gid.raw, sizeof(info.gid));
	memcpy(info.dest_gid, ah->grh.dgid.raw, sizeof(info.dest_gid));
	info.ifindex = gid.ndev_ifindex;
	pthread_mutex_lock(&qp->lock);
	pair_describe(qp, &info.desc);
	pthread_mutex_unlock(&qp->lock);
	peer = ctrl_qp_up(qp->bctx->ctrl, &info, qp);
	bond_lock(&qp->sq_lock);
	qp->peer = peer;
	bond_unlock(&qp->sq_lock);
	if (!peer)
		bond_info("QP 0x%x stays on path 0: %s", info.qpn, strerror(errno));
}

void bond_peer_down(struct bond_qp *qp)
{
	struct ctrl_qp *peer;

	/* The data path asks for keys through it. */
	bond_lock(&qp->sq_lock);
	peer = qp->peer;
	qp->peer = NULL;
	bond_unlock(&qp->sq_lock);
	if (peer)
		ctrl_qp_down(peer);
}

void bond_peer_wait(struct bond_qp *qp)
{
	int left_us = qp->bctx->cfg->wait_ms * 1000;
	struct timespec step = { .tv_nsec = WAIT_STEP_US * 1000 };

	while (left_us > 0 && qp->peer && !__atomic_load_n(&qp->paths_settled, __ATOMIC_ACQUIRE)) {
		nanosleep(&step, NULL);
		left_us -= WAIT_STEP_US;
	}
}

void bond_peer_key_ask(struct bond_qp *qp, uint32_t rkey)
{
	if (qp->peer)
		ctrl_key_ask(qp->peer, rkey);
}

void bond_peer_error(struct bond_qp *qp)
{
	if (qp->peer)
		ctrl_qp_error(qp->peer, 0);
}

void bond_peer_spread(struct bond_qp *qp)
{
	if (!(qp->busy & BUSY_SPREAD_PENDING) || (int32_t)(order_oldest(qp) - qp->spread_from) < 0)
		return;
	qp->busy &= ~BUSY_SPREAD_PENDING;
	qp->spreading = true;
	bond_qp_short_limit(qp);
}

/* ---- callbacks ---- */

static int peer_describe(void *cookie, const struct wire_qp_desc *peer, struct wire_qp_desc *mine)
{
	struct bond_qp *qp = cookie;
	int err;

	pthread_mutex_lock(&qp->lock);
	err = pair_lead(qp, peer, mine);
	pthread_mutex_unlock(&qp->lock);
	return err;
}

static int peer_offer(void *cookie, const struct wire_qp_desc *peer, struct wire_qp_desc *mine,
		      uint32_t *ok_mask)
{
	struct bond_qp *qp = cookie;
	int err;

	pthread_mutex_lock(&qp->lock);
	err = pair_follow(qp, peer, mine, ok_mask);
	pthread_mutex_unlock(&qp->lock);
	return err;
}

static int peer_answer(void *cookie, const struct wire_qp_desc *peer, uint32_t *ok_mask)
{
	struct bond_qp *qp = cookie;
	int err;

	pthread_mutex_lock(&qp->lock);
	err = pair_answer(qp, peer, ok_mask);
	pthread_mutex_unlock(&qp->lock);
	return err;
}

static void peer_ready(void *cookie, uint32_t path_mask)
{
	struct bond_qp *qp = cookie;

	pthread_mutex_lock(&qp->lock);
	pair_ready(qp, path_mask);
	pthread_mutex_unlock(&qp->lock);
	__atomic_store_n(&qp->paths_settled, true, __ATOMIC_RELEASE);
}

/* The peer's ends are gone: new work takes path 0; what is under way there ends by itself. */
static void peer_gone(void *cookie)
{
	struct bond_qp *qp = cookie;

	bond_lock(&qp->sq_lock);
	qp->npaths = 1;
	qp->busy &= ~BUSY_SPREAD_PENDING;
	bond_unlock(&qp->sq_lock);
	rkey_forget_all(&qp->rkeys);
	__atomic_store_n(&qp->paths_settled, false, __ATOMIC_RELEASE);
}

/*
 * The peer's QP failed. If that was because this side refused something on a path of ours, then
 * that path is in ERR here, as path 0 would be on one NIC.
 */
static void peer_error(void *cookie, uint32_t reason)
{
	struct bond_qp *qp = cookie;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	bool refused = false;
	unsigned int i;

	(void)reason;
	pthread_mutex_lock(&qp->lock);
	for (i = 1; i < qp->npaths_made; i++)
		if (qp->path[i].mqp &&
		    !ibv_query_qp(qp->path[i].mqp, &attr, IBV_QP_STATE, &init) &&
		    attr.qp_state == IBV_QPS_ERR)
			refused = true;
	pthread_mutex_unlock(&qp->lock);
	if (refused)
		bond_qp_to_error(qp);
}

static int peer_key_lookup(void *cookie, uint32_t rkey, struct ctrl_key *key)
{
	struct bond_qp *qp = cookie;

	struct rkey_region region;

	key->pd_id = qp->pd_id;
	if (!bond_mr_region(key->pd_id, rkey, &region))
		return ENOENT;
	key->nkeys = region.nkeys;
	memcpy(key->keys, region.key, sizeof(key->keys));
	key->access = region.access;
	key->addr = region.addr;
	key->length = region.length;
	return 0;
}

static unsigned int peer_key_list(void *cookie, uint32_t *rkeys, unsigned int max)
{
	struct bond_qp *qp = cookie;

	return bond_mr_list(qp->pd_id, rkeys, max);
}

static void peer_key_learned(void *cookie, uint32_t rkey, const struct ctrl_key *key)
{
	struct rkey_region region = { .nkeys = key->nkeys, .access = key->access,
				      .addr = key->addr, .length = key->length };
	struct bond_qp *qp = cookie;

	memcpy(region.key, key->keys, sizeof(region.key));
	if (region.nkeys && region.nkeys <= BOND_MAX_MEMBERS)
		rkey_learn(&qp->rkeys, rkey, &region);
}

static void peer_key_withdrawn(void *cookie, uint32_t rkey)
{
	struct bond_qp *qp = cookie;

	rkey_forget(&qp->rkeys, rkey);
}

/* RC does not need the session, so paths stay; but a withdrawal cannot be heard: keys go. */
static void peer_session_lost(void *cookie)
{
	struct bond_qp *qp = cookie;

	rkey_forget_all(&qp->rkeys);
	bond_dbg("QP 0x%x: the session with its peer broke", qp->vqp.qp.qp_num);
}

static void peer_session_back(void *cookie)
{
	struct bond_qp *qp = cookie;

	bond_dbg("QP 0x%x: the session with its peer is back", qp->vqp.qp.qp_num);
}

static void peer_log(void *arg, enum ctrl_log_level level, const char *line)
{
	(void)arg;
	if (level == CTRL_LOG_WARN)
		bond_warn("%s", line);
	else
		bond_dbg("%s", line);
}

static const struct ctrl_ops peer_ops = {
	.qp_describe = peer_describe,
	.qp_offer = peer_offer,
	.qp_answer = peer_answer,
	.qp_ready = peer_ready,
	.qp_gone = peer_gone,
	.qp_error = peer_error,
	.session_lost = peer_session_lost,
	.session_back = peer_session_back,
	.key_lookup = peer_key_lookup,
	.key_list = peer_key_list,
	.key_learned = peer_key_learned,
	.key_withdrawn = peer_key_withdrawn,
	.log = peer_log,
};
