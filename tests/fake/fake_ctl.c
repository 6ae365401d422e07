/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Access to the control file of a fake-run. Not here: making it, see fake_mkdev.c.
 */
#define _GNU_SOURCE
#include "fake_ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
	const char *name;
	const char *help;
	int64_t def;
} knobs[FAKE_NUM_KNOBS] = {
#define X(id, name, def, help) [FAKE_##id] = { name, help, def },
	FAKE_KNOBS(X)
#undef X
};

enum {
#define X(id, name, def, help) +1
	NUM_SWITCHES = 0 FAKE_SWITCHES(X)
#undef X
};

static pthread_once_t map_once = PTHREAD_ONCE_INIT;
static struct fake_ctl *mapped;
static int map_errno;

const char *fake_knob_name(enum fake_knob knob)
{
	return knobs[knob].name;
}

const char *fake_knob_help(enum fake_knob knob)
{
	return knobs[knob].help;
}

int64_t fake_knob_default(enum fake_knob knob)
{
	return knobs[knob].def;
}

int fake_knob_find(const char *name)
{
	for (int i = 0; i < FAKE_NUM_KNOBS; i++)
		if (!strcmp(knobs[i].name, name))
			return i;
	return -1;
}

static void map_ctl(void)
{
	const char *dir = secure_getenv("FAKE_DIR");
	struct fake_ctl *ctl;
	char path[PATH_MAX];
	int fd;

	map_errno = ENOENT;
	if (!dir || snprintf(path, sizeof(path), "%s/ctl", dir) >= (int)sizeof(path))
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		map_errno = errno;
		return;
	}
	ctl = mmap(NULL, sizeof(*ctl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ctl == MAP_FAILED)
		map_errno = errno;
	else if (ctl->size_bytes != sizeof(*ctl))
		map_errno = EPROTO;
	else
		mapped = ctl;
	close(fd);
}

struct fake_ctl *fake_ctl_map(void)
{
	pthread_once(&map_once, map_ctl);
	if (!mapped)
		errno = map_errno;
	return mapped;
}

struct fake_ctl_dev *fake_ctl_dev(const char *name)
{
	struct fake_ctl *ctl = fake_ctl_map();

	if (!ctl)
		return NULL;
	for (uint32_t i = 0; i < ctl->num_devs; i++)
		if (!strcmp(ctl->dev[i].name, name))
			return &ctl->dev[i];
	errno = ENODEV;
	return NULL;
}

int fake_ctl_set(const char *name, enum fake_knob knob, int64_t value)
{
	struct fake_ctl *ctl = fake_ctl_map();
	bool found = false;

	if (!ctl)
		return errno;
	for (uint32_t i = 0; i < ctl->num_devs; i++) {
		if (name && strcmp(ctl->dev[i].name, name))
			continue;
		atomic_store(&ctl->dev[i].knob[knob], value);
		found = true;
	}
	return found ? 0 : ENODEV;
}

int64_t fake_ctl_get(const char *name, enum fake_knob knob)
{
	struct fake_ctl_dev *dev = fake_ctl_dev(name);

	return dev ? atomic_load(&dev->knob[knob]) : -1;
}

void fake_ctl_reset(void)
{
	for (int i = 0; i < NUM_SWITCHES; i++)
		if (i != FAKE_INSTANT)
			fake_ctl_set(NULL, i, knobs[i].def);
}

void fake_ctl_zero_counters(void)
{
	for (int i = FAKE_POSTED_WR; i < FAKE_LIVE_PDS; i++)
		fake_ctl_set(NULL, i, 0);
}
