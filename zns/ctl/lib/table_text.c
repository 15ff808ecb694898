/* SPDX-License-Identifier: GPL-2.0-only */
/* Text of tables: names as one field, ids as short as possible, lines that fit the terminal. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "ctl.h"

#define COLUMNS 80
#define SHORT_ID 8 /* least digits of an id in a table */

const char *ctl_name(const char *name, char *buf, size_t len)
{
	const char *s = ctl_text(name);
	bool escaped = s != name; /* if it was escaped, its backslashes are no part of the name */
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
	snprintf(buf, len, "%s%s%s%s%s%s", c->pre_dump ? "  pre-dump" : "",
		 c->pages_only ? "  pages only" : "", c->post_copy ? "  post-copy" : "",
		 c->crypt ? "  encrypted" : "", ctl_pinned(ls, c) ? "  pinned" : "",
		 ctl_damaged(ls, c) ? "  DAMAGED" : "");
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

size_t ctl_room(void)
{
	struct winsize w;

	if (!isatty(STDOUT_FILENO))
		return SIZE_MAX;
	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col > 20 ? w.ws_col : COLUMNS;
}

/* Cuts a line that is wider than the terminal. Other outputs get the whole line. */
int ctl_print_cut(char *line)
{
	size_t room = ctl_room(), n = 0;
	char *s;

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

void ctl_fold_begin(struct ctl_fold *f)
{
	FILE *to = ctl_room() == SIZE_MAX ? NULL : open_memstream(&f->text, &f->len);

	f->terminal = stdout;
	if (to)
		stdout = to;
}

/*
 * Returns where to break the line so that it fits into @room columns: at a blank, if there is one
 * behind the column @least.
 */
static size_t fitting(const char *s, size_t len, size_t room, size_t least)
{
	size_t blank = 0, n = 0;

	for (size_t i = 0; i < len; i++) {
		if (((unsigned char)s[i] & 0xc0) == 0x80)
			continue;
		if (s[i] == ' ' && n > least)
			blank = i;
		if (++n > room && blank)
			return blank;
	}
	return len;
}

/*
 * Returns the column where the text of a line like "  KEY   text" begins; 4 if little room would be
 * left there.
 */
static size_t text_column(const char *s, size_t len, size_t room)
{
	size_t lead = strspn(s, " ");
	const char *gap = lead < len ? memmem(s + lead, len - lead, "  ", 2) : NULL;
	size_t column = gap ? (size_t)(gap - s) + strspn(gap, " ") : lead + 4;

	return column < room / 2 ? column : lead + 4;
}

void ctl_fold_end(struct ctl_fold *f, int column)
{
	size_t room = ctl_room();

	if (stdout == f->terminal)
		return;
	fclose(stdout);
	stdout = f->terminal;
	for (char *s = f->text; s && *s;) {
		size_t len = strcspn(s, "\n"),
		       indent = column ? (size_t)column : text_column(s, len, room),
		       n = fitting(s, len, room, indent);

		printf("%.*s\n", (int)n, s);
		for (s += n, len -= n; len; s += n, len -= n) {
			n = strspn(s, " ");
			s += n;
			len -= n;
			n = fitting(s, len, room - indent, 0);
			printf("%*s%.*s\n", (int)indent, "", (int)n, s);
		}
		s += *s == '\n';
	}
	free(f->text);
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
