/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ctrl_peer processes. See peer_proc.h; their language is explained in ctrl_peer.c.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_qp.h"
#include "peer_proc.h"

extern char **environ;

char peer_port[8];

int peer_setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	snprintf(peer_port, sizeof(peer_port), "%u", free_port());
	return 0;
}

static void start(struct peer *peer, char *const argv[])
{
	posix_spawn_file_actions_t actions;
	int in[2], out[2];

	assert_non_null(getenv("CTRL_PEER"));
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawnp(&peer->pid, argv[0], &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	peer->in = fdopen(in[1], "w");
	peer->out = fdopen(out[0], "r");
}

void peer_start(struct peer *peer)
{
	char *const argv[] = { getenv("CTRL_PEER"), peer_port, NULL };

	start(peer, argv);
}

void peer_start_as(struct peer *peer, const char *uid)
{
	setenv("CTRL_PEER_UID", uid, 1);
	peer_start(peer);
	unsetenv("CTRL_PEER_UID");
}

void peer_start_in_net(struct peer *peer)
{
	char *const argv[] = { "unshare", "-n", getenv("CTRL_PEER"), peer_port, NULL };
	char answer[64];

	start(peer, argv);
	/* When it answers, unshare has become the peer, in its own network. */
	peer_ask(peer, answer, "warnings");
}

void peer_ask(struct peer *peer, char answer[64], const char *line)
{
	fprintf(peer->in, "%s\n", line);
	fflush(peer->in);
	answer[0] = 0;
	if (!fgets(answer, 64, peer->out))
		fail_msg("no answer to: %s", line);
	answer[strcspn(answer, "\n")] = 0;
}

static void peer_close(struct peer *peer)
{
	fclose(peer->in);
	fclose(peer->out);
}

void peer_quit(struct peer *peer)
{
	int status = -1;

	expect(peer, "ok", "quit");
	peer_close(peer);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	assert_int_equal(status, 0);
}

void peer_kill(struct peer *peer)
{
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	peer_close(peer);
}
