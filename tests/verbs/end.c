/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The calls on an end, as a test makes them. Each becomes a message; end_serve() acts on it,
 * here or in the child. What a message does is in serve.c.
 */
#include "end.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "serve.h"

enum { CHILD_GAP_LEN = 1 << 30 };

static int end_call(struct end *e, struct end_msg *m)
{
	if (e->sock < 0) {
		end_serve(e->objs, e->base, m);
		return m->err;
	}
	if (send(e->sock, m, sizeof(*m), MSG_NOSIGNAL) != sizeof(*m) ||
	    recv(e->sock, m, sizeof(*m), 0) != sizeof(*m))
		die("the process of end b (%s) is gone", e->dev);
	return m->err;
}

static uint8_t *arena_map(int fd, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap of %zu bytes: %s", len, strerror(errno));
	return p;
}

/*
 * The process of end b: the same program, executed anew, so that all of its environment counts,
 * what the loader reads too. Does not return.
 */
static void child_run(const char *arg)
{
	struct end_objs *objs = calloc(1, sizeof(*objs));
	struct end_msg m;
	int sock, fd;
	size_t len;
	uint8_t *base;

	/* Never unmapped: it moves the arena away from where the parent has its own. */
	if (mmap(NULL, CHILD_GAP_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0) == MAP_FAILED || !objs)
		die("no memory in the process of end b");
	if (sscanf(arg, "%d,%d,%zu", &sock, &fd, &len) != 3)
		die("--serve is for this program itself");
	base = arena_map(fd, len);
	while (recv(sock, &m, sizeof(m), 0) == sizeof(m)) {
		end_serve(objs, base, &m);
		if (send(sock, &m, sizeof(m), MSG_NOSIGNAL) != sizeof(m) || m.cmd == END_CLOSE)
			break;
	}
	free(objs);
	munmap(base, len);
	/* Not _exit: a leak or a race found in this process must be reported too. */
	exit(0);
}

static void end_spawn(struct end *e, int fd)
{
	char arg[64];
	int sv[2], i;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv))
		die("socketpair: %s", strerror(errno));
	e->child = fork();
	if (e->child < 0)
		die("fork: %s", strerror(errno));
	if (!e->child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (i = 0; i < opts.nenv_b; i++)
			putenv((char *)opts.env_b[i]);
		close(sv[0]);
		snprintf(arg, sizeof(arg), "%d,%d,%zu", sv[1], fd, e->arena_len);
		execl("/proc/self/exe", program_invocation_name, "--serve", arg, (char *)NULL);
		_exit(127);
	}
	close(sv[1]);
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	e->sock = sv[0];
}

static void end_reap(struct end *e)
{
	int status = 0;

	close(e->sock);
	if (waitpid(e->child, &status, 0) != e->child || status)
		die("the process of end b (%s) ended with status %#x", e->dev, status);
}

static void end_open(struct end *e)
{
	struct end_msg m = { .cmd = END_OPEN, .open.gid_index = opts.gid_index };
	int err;

	snprintf(m.open.dev, sizeof(m.open.dev), "%s", e->dev);
	err = end_call(e, &m);
	if (err)
		die("open %s: %s", e->dev, m.open.error);
	e->base = m.open.base;
	e->gid_index = m.open.gid_index;
	e->gid = m.open.gid;
	e->attr = m.open.attr;
	e->port = m.open.port;
}

void pair_open(struct pair *p, size_t arena_len)
{
	pair_open_named(p, opts.dev[0], opts.dev[1], arena_len);
}

void pair_open_named(struct pair *p, const char *dev_a, const char *dev_b, size_t arena_len)
{
	const char *dev[] = { dev_a, dev_b };
	struct end *ends[] = { &p->a, &p->b };
	int fd[2], i;

	if (opts.serve)
		child_run(opts.serve);
	memset(p, 0, sizeof(*p));
	for (i = 0; i < 2; i++) {
		fd[i] = memfd_create("arena", 0);
		if (fd[i] < 0 || ftruncate(fd[i], arena_len))
			die("arena of %zu bytes: %s", arena_len, strerror(errno));
		ends[i]->dev = dev[i];
		ends[i]->arena_len = arena_len;
		ends[i]->sock = -1;
	}
	if (opts.two_processes)
		end_spawn(&p->b, fd[1]);
	for (i = 0; i < 2; i++) {
		ends[i]->peek = arena_map(fd[i], arena_len);
		ends[i]->base = ends[i]->peek;
		close(fd[i]);
		if (ends[i]->sock < 0)
			ends[i]->objs = calloc(1, sizeof(*ends[i]->objs));
		if (ends[i]->sock < 0 && !ends[i]->objs)
			die("no memory");
		end_open(ends[i]);
	}
}

void pair_close(struct pair *p)
{
	struct end *ends[] = { &p->a, &p->b };
	int i;

	for (i = 0; i < 2; i++) {
		struct end_msg m = { .cmd = END_CLOSE };
		int err = end_call(ends[i], &m);

		if (err)
			die("close %s: %s", ends[i]->dev, strerror(err));
		if (ends[i]->sock >= 0)
			end_reap(ends[i]);
		free(ends[i]->objs);
		munmap(ends[i]->peek, ends[i]->arena_len);
	}
}

int end_pd(struct end *e, int pd)
{
	struct end_msg m = { .cmd = END_PD_ALLOC, .id = pd };

	return end_call(e, &m);
}

int end_pd_dealloc(struct end *e, int pd)
{
	struct end_msg m = { .cmd = END_PD_DEALLOC, .id = pd };

	return end_call(e, &m);
}

int end_mr_reg(struct end *e, int mr, int pd, uint64_t off, uint64_t len, int access,
	       struct end_keys *keys)
{
	struct end_msg m = { .cmd = END_MR_REG, .id = mr };
	int err;

	m.mr.pd = pd;
	m.mr.off = off;
	m.mr.len = len;
	m.mr.access = access;
	err = end_call(e, &m);
	if (!err)
		*keys = m.mr.keys;
	return err;
}

int end_mr_dereg(struct end *e, int mr)
{
	struct end_msg m = { .cmd = END_MR_DEREG, .id = mr };

	return end_call(e, &m);
}

int end_cq_create(struct end *e, int cq, int cqe)
{
	struct end_msg m = { .cmd = END_CQ_CREATE, .id = cq, .n = cqe };

	return end_call(e, &m);
}

int end_cq_destroy(struct end *e, int cq)
{
	struct end_msg m = { .cmd = END_CQ_DESTROY, .id = cq };

	return end_call(e, &m);
}

int end_qp_create(struct end *e, int qp, struct qp_spec *spec)
{
	struct end_msg m = { .cmd = END_QP_CREATE, .id = qp, .qp.spec = *spec };
	int err = end_call(e, &m);

	if (!err)
		*spec = m.qp.spec;
	return err;
}

int end_qp_destroy(struct end *e, int qp)
{
	struct end_msg m = { .cmd = END_QP_DESTROY, .id = qp };

	return end_call(e, &m);
}

int end_qp_num(struct end *e, int qp, uint32_t *qpn)
{
	struct end_msg m = { .cmd = END_QP_NUM, .id = qp };
	int err = end_call(e, &m);

	if (!err)
		*qpn = m.n;
	return err;
}

int end_qp_modify(struct end *e, int qp, const struct ibv_qp_attr *attr, int mask)
{
	struct end_msg m = { .cmd = END_QP_MODIFY, .id = qp };

	m.modify.attr = *attr;
	m.modify.mask = mask;
	return end_call(e, &m);
}

enum ibv_qp_state end_qp_state(struct end *e, int qp)
{
	struct end_msg m = { .cmd = END_QP_STATE, .id = qp };

	return end_call(e, &m) ? IBV_QPS_UNKNOWN : (enum ibv_qp_state)m.n;
}

int end_qp_to(struct end *e, int qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return end_qp_modify(e, qp, &attr, IBV_QP_STATE);
}

int end_post_recv(struct end *e, int qp, const struct end_recv *recv, int n)
{
	struct end_msg m = { .cmd = END_POST_RECV, .id = qp };
	int chunk, err;

	for (; n > 0; n -= chunk, recv += chunk) {
		chunk = n < END_RECVS ? n : END_RECVS;
		m.n = chunk;
		memcpy(m.recv, recv, chunk * sizeof(*recv));
		err = end_call(e, &m);
		if (err)
			return err;
	}
	return 0;
}

int end_post_send(struct end *e, int qp, const struct end_send *send)
{
	struct end_msg m = { .cmd = END_POST_SEND, .id = qp, .send = *send };

	return end_call(e, &m);
}

int end_poll(struct end *e, int cq, struct ibv_wc *wc, int want, unsigned int timeout_ms)
{
	struct end_msg m = { .cmd = END_POLL, .id = cq, .n = want < END_WCS ? want : END_WCS };

	m.poll.timeout_ms = timeout_ms;
	if (end_call(e, &m))
		die("poll of CQ %d at %s: %s", cq, e->dev, strerror(m.err));
	memcpy(wc, m.poll.wc, m.n * sizeof(*wc));
	return m.n;
}

int end_event(struct end *e, enum ibv_event_type *type, int *qp, unsigned int timeout_ms)
{
	struct end_msg m = { .cmd = END_EVENT, .event.timeout_ms = timeout_ms };
	int err = end_call(e, &m);

	if (!err) {
		*type = m.event.type;
		*qp = m.event.qp;
	}
	return err;
}

int end_sleep(struct end *e, unsigned int ms)
{
	struct end_msg m = { .cmd = END_SLEEP, .n = ms };

	return end_call(e, &m);
}

struct ibv_sge sge_at(const struct end *e, uint64_t off, uint32_t len, uint32_t lkey)
{
	return (struct ibv_sge){ (uintptr_t)e->base + off, len, lkey };
}
