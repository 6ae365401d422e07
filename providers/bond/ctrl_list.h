/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A ring of nodes inside the objects that it lists; the ring's own node is its head. A node that is
 * on no ring points to itself, so that removing it twice is harmless.
 */
#ifndef BOND_CTRL_LIST_H
#define BOND_CTRL_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ring {
	struct ring *next;
	struct ring *prev;
};

#define ring_entry(node, type, field) ((type *)((char *)(node) - offsetof(type, field)))

/* node may be removed, and its object freed, while it is visited; no other node may. */
#define ring_for_each(node, after, head)                                       \
	for (node = (head)->next, after = node->next; node != (head);          \
	     node = after, after = node->next)

static inline void ring_init(struct ring *node)
{
	node->next = node;
	node->prev = node;
}

static inline bool ring_empty(const struct ring *head)
{
	return head->next == head;
}

static inline void ring_remove(struct ring *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	ring_init(node);
}

static inline void ring_append(struct ring *head, struct ring *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Moves all nodes of from behind those of to. */
static inline void ring_splice(struct ring *to, struct ring *from)
{
	if (ring_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	ring_init(from);
}

#endif
