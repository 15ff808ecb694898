/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See predict.h. If there is no memory for the tables, nothing is learned, and all else works. */
#include <stdlib.h>

#include "predict.h"

#define SIZE_MIN 1024U
#define SIZE_MAX_LINKS (1U << 18) /* 3 MiB; a full table is emptied and filled again */

struct predict_link {
	uint32_t block, next, before; /* each is a block + 1; 0: none */
};

void predict_free(struct predict *p)
{
	free(p->link);
	*p = (struct predict){ 0 };
}

/* Returns the slot of @block, or the free one where it belongs. */
static struct predict_link *slot(struct predict_link *link, uint32_t size, uint32_t block)
{
	uint32_t i = block * 2654435761U & (size - 1);

	while (link[i].block && link[i].block != block + 1)
		i = (i + 1) & (size - 1);
	return &link[i];
}

static struct predict_link *find(const struct predict *p, uint32_t block)
{
	struct predict_link *l = p->size ? slot(p->link, p->size, block) : NULL;

	return l && l->block ? l : NULL;
}

static bool grow(struct predict *p)
{
	uint32_t size = p->size ? p->size * 2 : SIZE_MIN;
	struct predict_link *link;

	if (size > SIZE_MAX_LINKS) {
		predict_free(p);
		size = SIZE_MIN;
	}
	link = calloc(size, sizeof(*link));
	if (!link)
		return false;
	for (uint32_t i = 0; i < p->size; i++)
		if (p->link[i].block)
			*slot(link, size, p->link[i].block - 1) = p->link[i];
	free(p->link);
	p->link = link;
	p->size = size;
	return true;
}

static void learn_link(struct predict *p, uint32_t from, uint32_t to)
{
	struct predict_link *l;

	if (p->nr + 2 > p->size / 2 && !grow(p))
		return;
	l = slot(p->link, p->size, from);
	p->nr += !l->block;
	l->block = from + 1;
	l->next = to + 1;
	l = slot(p->link, p->size, to);
	p->nr += !l->block;
	l->block = to + 1;
	l->before = from + 1;
}

unsigned int predict_fault(struct predict *p, uint32_t block, bool learn, unsigned int max,
			   uint32_t next[PREDICT_CHAIN])
{
	unsigned int n = 0;

	if (learn && p->tail && p->tail != block + 1)
		learn_link(p, p->tail - 1, block);
	for (; n < max && n < PREDICT_CHAIN; n++) {
		const struct predict_link *l = find(p, block);

		if (!l || !l->next)
			break;
		block = l->next - 1;
		next[n] = block;
	}
	p->tail = block + 1;
	return n;
}

unsigned int predict_before(const struct predict *p, uint32_t block, uint32_t before[PREDICT_CHAIN])
{
	unsigned int n = 0;

	for (; n < PREDICT_CHAIN; n++) {
		const struct predict_link *l = find(p, block);

		if (!l || !l->before)
			break;
		block = l->before - 1;
		before[n] = block;
	}
	return n;
}

void predict_unused(struct predict *p, uint32_t block)
{
	struct predict_link *l = find(p, block), *before;

	if (!l || !l->before)
		return;
	before = find(p, l->before - 1);
	l->before = 0;
	if (before && before->next == block + 1)
		before->next = 0;
}
