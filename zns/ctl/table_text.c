/* SPDX-License-Identifier: GPL-2.0-only */
/* Parts of tables: names as one field, ids as short as possible, lines that fit the terminal. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "ctl.h"

#define COLUMNS 80
#define SHORT_ID 8 /* least digits of an id in a table */

const char *ctl_name(const char *name, char *buf, size_t len)
{
	const char *s = ctl_text(name);
	bool escaped = s != name; /* these backslashes are not its own */
	size_t n = 0;

	if (*s && !strpbrk(s, " \"\\")) {
		snprintf(buf, len, "%s", s);
		return buf;
	}
	buf[n++] = '"';
	for (; *s && n + 4 < len; s++) {
		if (*s == '"' || (*s == '\\' && !escaped))
			buf[n++] = '\\';
		buf[n++] = *s;
	}
	snprintf(buf + n, len - n, "\"");
	return buf;
}

char *ctl_marks(const ZnsPb__Checkpoint *c, const ZnsPb__Response *ls, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s%s%s%s", c->pre_dump ? "  pre-dump" : "",
		 c->pages_only ? "  pages only" : "", c->post_copy ? "  post-copy" : "",
		 c->crypt ? "  encrypted" : "", ctl_pinned(ls, c) ? "  pinned" : "");
	return buf;
}

static int cmp_id(const void *a, const void *b)
{
	return strcmp(a, b);
}

int ctl_id_width(const ZnsPb__Response *ls)
{
	char(*ids)[ZNS_UUID_STR] = calloc(ls->n_checkpoints + 1, sizeof(*ids));
	int width = SHORT_ID;

	for (size_t i = 0; ids && i < ls->n_checkpoints; i++)
		if (ls->checkpoints[i]->id.len == ZNS_UUID_LEN)
			zns_uuid_format(ls->checkpoints[i]->id.data, ids[i]);
	if (ids)
		qsort(ids, ls->n_checkpoints, sizeof(*ids), cmp_id);
	for (size_t i = 1; ids && i < ls->n_checkpoints; i++) {
		int same = 0;

		while (ids[i][same] && ids[i][same] == ids[i - 1][same])
			same++;
		width = zns_max(width, zns_min(same + 1, ZNS_UUID_STR - 1));
	}
	free(ids);
	return width;
}

/* Cuts a line that is too wide for a terminal. Other outputs get all of it. */
int ctl_print_cut(char *line)
{
	struct winsize w;
	size_t room = COLUMNS, n = 0;
	char *s;

	if (!isatty(STDOUT_FILENO))
		return puts(line);
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col > 20)
		room = w.ws_col;
	for (s = line; *s; s++) {
		if (((unsigned char)*s & 0xc0) == 0x80)
			continue;
		if (++n == room && s[1]) {
			*s = 0;
			return printf("%s…\n", line);
		}
	}
	return puts(line);
}

void ctl_print_word(const char *word, int indent, int *at)
{
	int n = (int)strlen(word) + 1;

	if (*at + n > COLUMNS) {
		printf("\n%*s", indent, "");
		*at = indent;
	}
	*at += printf(" %s", word);
}
