/* SPDX-License-Identifier: GPL-2.0-only */
/* All zones on one screen: one or more rows per group, one letter per owner. */
#include <string.h>
#include <sys/ioctl.h>
#include "ctl.h"

#define LETTERS 26
#define ROW_HEAD 12

struct picture {
	const char *owner[LETTERS];
	uint32_t nr_owners;
	uint32_t rows, cols;
};

static void screen(struct picture *p)
{
	struct winsize w;

	p->rows = 24;
	p->cols = 80;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row > 10 && w.ws_col > 30) {
		p->rows = w.ws_row;
		p->cols = w.ws_col;
	}
}

static int letter(struct picture *p, const char *owner)
{
	uint32_t i;

	for (i = 0; i < p->nr_owners; i++)
		if (!strcmp(p->owner[i], owner))
			return i;
	if (p->nr_owners == LETTERS)
		return -1;
	p->owner[p->nr_owners] = owner;
	return p->nr_owners++;
}

static char symbol(struct picture *p, const ZnsPb__ZoneLine *z)
{
	int n;

	if (z->state == ZNS_ZONE_READ_ONLY || z->state == ZNS_ZONE_OFFLINE || z->suspect)
		return '!';
	if (z->owner && !strncmp(z->owner, "(metadata)", 10))
		return '#';
	if (z->owner && !strncmp(z->owner, "(writing)", 9))
		return '*';
	if (z->owner) {
		n = letter(p, z->owner);
		if (n < 0)
			return '+';
		/* Capital letter: full. Small letter: has room for more data of the same owner. */
		return (z->state == ZNS_ZONE_FULL ? 'A' : 'a') + n;
	}
	return z->state == ZNS_ZONE_EMPTY ? '.' : '~';
}

/* If a cell stands for several zones, it shows the most important one. */
static int weight(char c)
{
	return c == '.' ? 0 : c == '~' ? 1 : c == '!' ? 4 : c == '*' ? 3 : 2;
}

void ctl_picture(const ZnsPb__Response *r)
{
	struct picture p = { .nr_owners = 0 };
	struct ctl_fold fold = { 0 };
	uint32_t groups = 0, per_row, per_cell, longest = 0, row, i;
	cleanup_free uint32_t *count = NULL;
	cleanup_free char *line = NULL;
	size_t z;

	screen(&p);
	for (z = 0; z < r->n_zones; z++)
		groups = zns_max(groups, r->zones[z]->group + 1);
	if (!groups)
		return;
	/* Leave room for the head, the legend and a few owners. */
	per_row = (groups + p.rows - 9) / (p.rows - 8);
	count = calloc(groups / per_row + 1, sizeof(*count));
	line = malloc(r->n_zones + 1);
	if (!count || !line)
		return;
	for (z = 0; z < r->n_zones; z++) {
		uint32_t n = ++count[r->zones[z]->group / per_row];

		longest = zns_max(longest, n);
	}
	per_cell = (longest + p.cols - ROW_HEAD - 1) / (p.cols - ROW_HEAD);
	if (!per_cell)
		per_cell = 1;
	if (per_cell > 1)
		printf("one cell = %u zones\n", per_cell);
	for (row = 0; row * per_row < groups; row++) {
		uint32_t last = zns_min((row + 1) * per_row, groups) - 1, n = 0;

		for (z = 0; z < r->n_zones; z++) {
			char c;

			if (r->zones[z]->group / per_row != row)
				continue;
			c = symbol(&p, r->zones[z]);
			if (n % per_cell == 0 || weight(c) > weight(line[n / per_cell]))
				line[n / per_cell] = c;
			n++;
		}
		line[(n + per_cell - 1) / per_cell] = 0;
		if (per_row == 1)
			printf("%9u  %s\n", row, line);
		else
			printf("%4u-%-4u  %s\n", row * per_row, last, line);
	}
	printf("\n. empty   # metadata   * being written   ~ to be reset\n"
	       "! read-only, offline, or a write failed\n");
	ctl_fold_begin(&fold);
	for (i = 0; i < p.nr_owners; i++)
		printf("%c %s%s", 'a' + i, p.owner[i],
		       i % 4 == 3 || i + 1 == p.nr_owners ? "\n" : "   ");
	ctl_fold_end(&fold, 2);
	if (p.nr_owners)
		printf("A capital letter: the zone is full.\n");
}
