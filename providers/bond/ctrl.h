/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The control channel: finds the process at the other end of a QP, pairs the two QPs, and exchanges
 * keys, all in one thread of its own; nothing here makes the caller wait for the peer.
 *
 * It knows no verbs objects. The QP layer gives it a table of callbacks (struct ctrl_ops) and gets
 * a handle per QP. Protocol: Documentation/control-protocol.md. Insides: ctrl_priv.h.
 */
#ifndef BOND_CTRL_H
#define BOND_CTRL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

struct auth_key;
struct ctrl;
struct ctrl_qp;

enum ctrl_log_level {
	CTRL_LOG_WARN,		/* once per change of state */
	CTRL_LOG_DEBUG,
};

/* A key as its owner tells it: per member, index 0 is the rkey asked for. */
struct ctrl_key {
	uint64_t pd_id;
	uint8_t nkeys;
	uint32_t keys[WIRE_MAX_MEMBERS];
	uint32_t access;	/* IBV_ACCESS_* of the MR */
	uint64_t addr, length;	/* the remote addresses that it covers, bytes */
};

/* MRs that one side tells the other of without being asked, at pairing. */
#define CTRL_KEY_OFFERS 64

/*
 * All callbacks run in the control thread, one at a time, never after ctrl_qp_down() of that QP
 * has returned. They may take their time over slow system calls on members (create, modify), but
 * must not wait for the peer, and must not call ctrl_qp_down() or ctrl_destroy(). They may call
 * anything else here. cookie: as given to ctrl_qp_up().
 *
 * Order of one pairing. Leader (the lower GID, QPN): qp_describe, qp_answer, qp_ready. Follower:
 * qp_offer, qp_ready. A pairing that had begun and ends, or never gets READY, ends with qp_gone;
 * the next may follow at once. A QP that is connected to itself is a leader alone: qp_describe,
 * then qp_answer with its own description, then qp_ready, with no network between.
 *
 * Masks: bit i is path i.
 */
struct ctrl_ops {
	/*
	 * Leader: make this side's paths and describe them in *mine. peer: the other side's
	 * members, access flags and so on, with npaths 0. Errors: the reason is told to the peer,
	 * and no qp_gone follows. EBUSY, ENOMEM, EMFILE, ENFILE: both sides try again, later and
	 * later. Others: both stay on path 0.
	 */
	int (*qp_describe)(void *cookie, const struct wire_qp_desc *peer,
			   struct wire_qp_desc *mine);
	/*
	 * Follower: make this side's paths, connect them to the leader's, describe them in *mine.
	 * *ok_mask: those that are connected. Errors as above.
	 */
	int (*qp_offer)(void *cookie, const struct wire_qp_desc *peer, struct wire_qp_desc *mine,
			uint32_t *ok_mask);
	/* Leader: connect this side's paths to the follower's. Errors as above, but with qp_gone. */
	int (*qp_answer)(void *cookie, const struct wire_qp_desc *peer, uint32_t *ok_mask);
	/* Both sides have connected these paths: from now on they may carry traffic. */
	void (*qp_ready)(void *cookie, uint32_t path_mask);
	/* The peer's QP went down or to another pairing: its paths are of no use any more. */
	void (*qp_gone)(void *cookie);
	/* The peer's QP layer called ctrl_qp_error(). May be told more than once. */
	void (*qp_error)(void *cookie, uint32_t reason);
	/*
	 * The session broke under a pairing that was READY here. Its paths stay usable, keys
	 * already learned too, though a withdrawal cannot be heard until session_back, which
	 * follows when the same two QPs have found each other again; or qp_gone does.
	 */
	void (*session_lost)(void *cookie);
	void (*session_back)(void *cookie);
	/*
	 * The peer asks for the keys of an MR of this QP's PD. ENOENT: no such key, or none that
	 * may be used remotely.
	 */
	int (*key_lookup)(void *cookie, uint32_t rkey, struct ctrl_key *key);
	/*
	 * rkeys of MRs that the peer will probably use: they are sent to it ahead of READY, so that
	 * its first operations need not ask. Fills at most max, returns how many. May be NULL.
	 */
	unsigned int (*key_list)(void *cookie, uint32_t *rkeys, unsigned int max);
	/*
	 * The answer to ctrl_key_ask(), or one that the peer sent unasked, then also before qp_ready.
	 * nkeys 0: the peer has none (now). pd_id is not set.
	 */
	void (*key_learned)(void *cookie, uint32_t rkey, const struct ctrl_key *key);
	/*
	 * The peer has deregistered that MR: forget its keys. The call comes for every QP of that
	 * session whose peer's pd_id it was, whether or not that QP has learned the key.
	 */
	void (*key_withdrawn)(void *cookie, uint32_t rkey);
	/* One line without newline. Any thread of ours; level as above. May be NULL. */
	void (*log)(void *log_arg, enum ctrl_log_level level, const char *line);
};

struct ctrl_config {
	uint16_t port;	/* control_port, host byte order, not 0; the same on every host */
	const struct auth_key *key;	/* copied; NULL: no secret */
	const struct ctrl_ops *ops;	/* must outlive the control channel */
	void *log_arg;
	/* For tests; 0: as the protocol says. */
	uint32_t heartbeat_ms;		/* between PINGs; silent for five: lost. Default 2000 */
	uint32_t greet_ms;		/* until a connection must be a session. Default 5000 */
};

struct ctrl_qp_info {
	uint8_t gid[16];		/* of the sgid_index in use: the dest GID of the peer */
	uint32_t qpn;
	uint8_t dest_gid[16];
	uint32_t dest_qpn;
	uint32_t generation;		/* not 0; one more per RESET of this QPN */
	uint32_t ifindex;		/* of the sgid's netdev: scope of a link-local dest_gid */
	struct wire_qp_desc desc;	/* npaths is ignored: what the peer may know beforehand */
};

/* Starts the control thread. NULL with errno. */
struct ctrl *ctrl_create(const struct ctrl_config *config);

/* All QPs should be down; those that are not are forgotten without callbacks. */
void ctrl_destroy(struct ctrl *ctrl);

/*
 * For pthread_atfork(). prepare and parent lie around fork() in the parent. child closes every
 * socket of the control channel and makes each later call on it in this process do nothing
 * (ctrl_qp_up: NULL, ENODEV); it touches nothing else, and takes the place of ctrl_destroy().
 */
void ctrl_fork_prepare(struct ctrl *ctrl);
void ctrl_fork_parent(struct ctrl *ctrl);
void ctrl_fork_child(struct ctrl *ctrl);

/*
 * A QP has reached RTR: look for its peer, as long as it is up. Returns at once: NULL with errno
 * (ENOMEM, EINVAL) leaves the QP on path 0. info is copied.
 */
struct ctrl_qp *ctrl_qp_up(struct ctrl *ctrl, const struct ctrl_qp_info *info, void *cookie);

/*
 * RESET or destroy. Waits for a callback of this QP that is running now, never for the network; so
 * hold no lock that a callback takes. No callback for this QP runs afterwards, and qp is gone: no
 * other call may be under way on it.
 */
void ctrl_qp_down(struct ctrl_qp *qp);

/* This side's QP went to ERR by itself. Tells the peer, now or when it is found. */
void ctrl_qp_error(struct ctrl_qp *qp, uint32_t reason);

/*
 * Data path: fetch the peer's keys for path 0's rkey in the background. No lock, no allocation; a
 * system call only if the control thread sleeps. An rkey already asked for is not asked again
 * until the answer came, nor for 50 ms after the answer was that there are none; with too many
 * outstanding it is dropped: so ask at every use.
 */
void ctrl_key_ask(struct ctrl_qp *qp, uint32_t rkey);

/*
 * An MR was deregistered (call it before the member MRs go): every session that was given its keys
 * is told. Never waits. rkey and pd_id as key_lookup said them.
 */
void ctrl_key_withdraw(struct ctrl *ctrl, uint32_t rkey, uint64_t pd_id);

/* Has some live session not yet confirmed the withdrawal of this key? */
bool ctrl_key_withdrawing(struct ctrl *ctrl, uint32_t rkey, uint64_t pd_id);

#endif
