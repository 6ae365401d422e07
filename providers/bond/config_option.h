/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The option table as the parser of the file uses it. Private to config.c and config_option.c.
 */
#ifndef BOND_CONFIG_OPTION_H
#define BOND_CONFIG_OPTION_H

#include "config.h"

#include <stddef.h>

enum value_type { TYPE_INT, TYPE_SIZE, TYPE_ENUM, TYPE_WEIGHTS, TYPE_MEMBERS, TYPE_FILE };

enum option_flags {
	FLAG_AUTO = 1,		/* "auto" is allowed and stored as CONFIG_AUTO */
	FLAG_NO_FILE = 2,
	FLAG_NO_ENV = 4,
};

struct option {
	const char *key;
	enum value_type type;
	size_t offset;			/* into struct bond_config */
	int min, max;
	const char *unit;
	const char *const *names;	/* TYPE_ENUM: the values' names in the enum's order */
	const char *def;
	int flags;
	const char *help;
};

enum {
	OPTION_MEMBERS,
	OPTION_STRIPE_ABOVE,
	OPTION_ORDER_BELOW,
	OPTION_ORDERING,
	OPTION_MODE,
	OPTION_CONTROL_PORT,
	OPTION_AUTH_KEY_FILE,
	OPTION_WEIGHTS,
	OPTION_SPLIT_SEND,
	OPTION_TRAFFIC_CLASS,
	OPTION_SL,
	OPTION_TIMEOUT,
	OPTION_RETRY_CNT,
	OPTION_QPS_PER_MEMBER,
	OPTION_WAIT_MS,
	NUM_OPTIONS,
	OPTION_ALLOWED_SIZE = 160,	/* room for option_allowed() */
	OPTION_VARIABLE_SIZE = 48,
};

extern const struct option config_options[NUM_OPTIONS];

/* The index of a key of the file, -1 where there is none. */
int option_find(const char *key);

/* What may be given, in words, for messages and the manual page. */
void option_allowed(const struct option *o, char *buf, size_t size);

/* The name of its environment variable. */
void option_variable(const struct option *o, char *buf, size_t size);

/* Stores one value in *bond; false where it is not allowed. Not for TYPE_MEMBERS. */
bool option_parse(const struct option *o, const char *text, struct bond_config *bond);

void option_set_defaults(struct bond_config *bond);

/* Whether it can name a device: letters, digits, "_", "." and "-", at most max bytes. */
bool config_name_ok(const char *text, size_t max);

/* One member specification, made normal; false where it cannot be one. */
bool member_spec_parse(struct member_spec *spec, const char *text);
bool member_spec_equal(const struct member_spec *a, const struct member_spec *b);

#endif
