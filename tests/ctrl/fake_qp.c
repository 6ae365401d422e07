/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The QP layer of the control channel's tests. See fake_qp.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fake_qp.h"

static pthread_mutex_t keys_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint32_t rkey;
	struct ctrl_key key;
} keys[FAKE_KEYS];
static atomic_uint warnings;

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec delay = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&delay, NULL);
}

uint16_t free_port(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    getsockname(fd, (struct sockaddr *)&sa, &len))
		abort();
	close(fd);
	return ntohs(sa.sin_port);
}

int fds_open(void)
{
	int count = 0;

	for (int fd = 3; fd < 1024; fd++) {
		int copy = dup(fd);

		if (copy < 0)
			continue;
		close(copy);
		count++;
	}
	return count;
}

void fake_key_add(uint32_t rkey, uint64_t pd_id, unsigned int nkeys)
{
	pthread_mutex_lock(&keys_lock);
	for (int i = 0; i < FAKE_KEYS; i++) {
		if (keys[i].rkey)
			continue;
		keys[i].rkey = rkey;
		keys[i].key.pd_id = pd_id;
		keys[i].key.nkeys = (uint8_t)nkeys;
		for (unsigned int k = 0; k < nkeys; k++)
			keys[i].key.keys[k] = rkey + k;
		break;
	}
	pthread_mutex_unlock(&keys_lock);
}

void fake_key_remove(uint32_t rkey)
{
	pthread_mutex_lock(&keys_lock);
	for (int i = 0; i < FAKE_KEYS; i++)
		if (keys[i].rkey == rkey)
			keys[i].rkey = 0;
	pthread_mutex_unlock(&keys_lock);
}

static int key_get(uint32_t rkey, struct ctrl_key *key)
{
	int err = ENOENT;

	pthread_mutex_lock(&keys_lock);
	for (int i = 0; i < FAKE_KEYS && err; i++) {
		if (!rkey || keys[i].rkey != rkey)
			continue;
		*key = keys[i].key;
		err = 0;
	}
	pthread_mutex_unlock(&keys_lock);
	return err;
}

static void enter(struct fake_qp *qp, enum fake_event event)
{
	pthread_mutex_lock(&qp->lock);
	if (qp->down)
		qp->after_down++;
	qp->inside++;
	pthread_mutex_unlock(&qp->lock);
	if (qp->hook)
		qp->hook(qp, event);
	if (qp->slow_ms)
		sleep_ms(qp->slow_ms);
	pthread_mutex_lock(&qp->lock);
	if (qp->down)
		qp->after_down++;
}

static void leave(struct fake_qp *qp, enum fake_event event)
{
	qp->count[event]++;
	qp->inside--;
	pthread_cond_broadcast(&qp->changed);
	pthread_mutex_unlock(&qp->lock);
}

/* Paths 1 and up, with numbers that tell which QP and generation they are of. */
static void paths_make(struct fake_qp *qp, struct wire_qp_desc *mine)
{
	*mine = qp->info.desc;
	mine->npaths = (uint8_t)qp->npaths;
	for (unsigned int i = 0; i < qp->npaths; i++) {
		mine->paths[i].member = (uint8_t)(i % mine->nmembers);
		mine->paths[i].peer_member = mine->paths[i].member;
		mine->paths[i].qpn = i ? qp->info.qpn * 16 + i : qp->info.qpn;
		mine->paths[i].psn = qp->info.generation * 100 + i;
	}
}

static int on_describe(void *cookie, const struct wire_qp_desc *peer, struct wire_qp_desc *mine)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_DESCRIBE);
	qp->peer = *peer;
	paths_make(qp, mine);
	leave(qp, FAKE_DESCRIBE);
	return qp->fail[FAKE_DESCRIBE];
}

static int on_offer(void *cookie, const struct wire_qp_desc *peer, struct wire_qp_desc *mine,
		    uint32_t *ok_mask)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_OFFER);
	qp->peer = *peer;
	paths_make(qp, mine);
	*ok_mask = (1u << qp->npaths) - 1;
	leave(qp, FAKE_OFFER);
	return qp->fail[FAKE_OFFER];
}

static int on_answer(void *cookie, const struct wire_qp_desc *peer, uint32_t *ok_mask)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_ANSWER);
	qp->peer = *peer;
	*ok_mask = (1u << qp->npaths) - 1;
	leave(qp, FAKE_ANSWER);
	return qp->fail[FAKE_ANSWER];
}

static void on_ready(void *cookie, uint32_t path_mask)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_READY);
	qp->mask = path_mask;
	leave(qp, FAKE_READY);
}

static void on_gone(void *cookie)
{
	enter(cookie, FAKE_GONE);
	leave(cookie, FAKE_GONE);
}

static void on_error(void *cookie, uint32_t reason)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_ERROR);
	qp->reason = reason;
	leave(qp, FAKE_ERROR);
}

static void on_lost(void *cookie)
{
	enter(cookie, FAKE_LOST);
	leave(cookie, FAKE_LOST);
}

static void on_back(void *cookie)
{
	enter(cookie, FAKE_BACK);
	leave(cookie, FAKE_BACK);
}

static int on_lookup(void *cookie, uint32_t rkey, struct ctrl_key *key)
{
	int err = key_get(rkey, key);

	/* After the look: a hook may withdraw what was just found. */
	enter(cookie, FAKE_LOOKUP);
	leave(cookie, FAKE_LOOKUP);
	return err;
}

static void on_learned(void *cookie, uint32_t rkey, const struct ctrl_key *key)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_LEARNED);
	qp->learned_rkey = rkey;
	qp->learned_nkeys = key->nkeys;
	memcpy(qp->learned_keys, key->keys, key->nkeys * sizeof(*key->keys));
	leave(qp, FAKE_LEARNED);
}

static void on_withdrawn(void *cookie, uint32_t rkey)
{
	struct fake_qp *qp = cookie;

	enter(qp, FAKE_WITHDRAWN);
	qp->withdrawn_rkey = rkey;
	leave(qp, FAKE_WITHDRAWN);
}

static void on_log(void *arg, enum ctrl_log_level level, const char *line)
{
	(void)arg;
	if (level == CTRL_LOG_WARN)
		atomic_fetch_add(&warnings, 1);
	if (getenv("CTRL_TEST_LOG"))
		fprintf(stderr, "[%d] %s%s\n", (int)getpid(),
			level == CTRL_LOG_WARN ? "warning: " : "", line);
}

static const struct ctrl_ops fake_ops = {
	.qp_describe = on_describe,
	.qp_offer = on_offer,
	.qp_answer = on_answer,
	.qp_ready = on_ready,
	.qp_gone = on_gone,
	.qp_error = on_error,
	.session_lost = on_lost,
	.session_back = on_back,
	.key_lookup = on_lookup,
	.key_learned = on_learned,
	.key_withdrawn = on_withdrawn,
	.log = on_log,
};

unsigned int fake_warnings(void)
{
	return atomic_exchange(&warnings, 0);
}

struct ctrl *fake_ctrl(uint16_t port, const struct auth_key *key)
{
	struct ctrl_config config = {
		.port = port,
		.key = key,
		.ops = &fake_ops,
		.heartbeat_ms = 200,
		.greet_ms = 1500,
	};

	return ctrl_create(&config);
}

void fake_gid(uint8_t gid[16], const char *text)
{
	memset(gid, 0, 16);
	if (inet_pton(AF_INET, text, gid + 12) == 1) {
		gid[10] = 0xff;
		gid[11] = 0xff;
	} else if (inet_pton(AF_INET6, text, gid) != 1) {
		abort();
	}
}

void fake_init(struct fake_qp *qp, const char *ip, uint32_t qpn, const char *dest_ip,
	       uint32_t dest_qpn, uint32_t generation)
{
	memset(qp, 0, sizeof(*qp));
	pthread_mutex_init(&qp->lock, NULL);
	pthread_cond_init(&qp->changed, NULL);
	qp->npaths = 2;
	fake_gid(qp->info.gid, ip);
	fake_gid(qp->info.dest_gid, dest_ip);
	qp->info.qpn = qpn;
	qp->info.dest_qpn = dest_qpn;
	qp->info.generation = generation;
	qp->info.desc.nmembers = 2;
	qp->info.desc.pd_id = 7;
	for (int i = 0; i < 2; i++) {
		memcpy(qp->info.desc.members[i].gid, qp->info.gid, 16);
		qp->info.desc.members[i].mtu = 1024;
		qp->info.desc.members[i].speed_mbps = 100000;
	}
}

void fake_up(struct ctrl *ctrl, struct fake_qp *qp)
{
	pthread_mutex_lock(&qp->lock);
	qp->down = false;
	pthread_mutex_unlock(&qp->lock);
	qp->qp = ctrl_qp_up(ctrl, &qp->info, qp);
	if (!qp->qp)
		abort();
}

void fake_down(struct fake_qp *qp)
{
	ctrl_qp_down(qp->qp);
	qp->qp = NULL;
	pthread_mutex_lock(&qp->lock);
	qp->down = true;
	if (qp->inside)
		qp->after_down++;
	pthread_mutex_unlock(&qp->lock);
}

void fake_end(struct fake_qp *qp)
{
	if (qp->qp)
		fake_down(qp);
	if (qp->after_down) {
		fprintf(stderr, "QP %u: %u callbacks after it was down\n", qp->info.qpn,
			qp->after_down);
		abort();
	}
}

unsigned int fake_count(struct fake_qp *qp, enum fake_event event)
{
	unsigned int count;

	pthread_mutex_lock(&qp->lock);
	count = qp->count[event];
	pthread_mutex_unlock(&qp->lock);
	return count;
}

bool fake_wait(struct fake_qp *qp, enum fake_event event, unsigned int count, unsigned int ms)
{
	struct timespec until;
	bool reached;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	pthread_mutex_lock(&qp->lock);
	while (qp->count[event] < count)
		if (pthread_cond_timedwait(&qp->changed, &qp->lock, &until))
			break;
	reached = qp->count[event] >= count;
	pthread_mutex_unlock(&qp->lock);
	return reached;
}
