/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order in which `docker suspend --all` suspends containers, which matters if the time does not
 * suffice for all.
 */
#include <stdlib.h>
#include <string.h>
#include "docker.h"

/*
 * Does @x come before @y? They are sorted by stop order first. Then idle containers come first,
 * since a suspend does not disturb them; among these the largest, whose memory would take longest
 * to rebuild.
 */
static int before(const void *x, const void *y)
{
	const struct docker_candidate *a = x, *b = y;

	if (a->order != b->order)
		return a->order < b->order ? -1 : 1;
	if (a->idle != b->idle)
		return a->idle ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return strcmp(a->name, b->name);
}

void docker_suspend_order(struct docker_candidate *list, size_t nr)
{
	qsort(list, nr, sizeof(*list), before);
}
