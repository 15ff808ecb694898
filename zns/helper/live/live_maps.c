/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replaces the read of /proc/PID/smaps during the freeze, whose page walk takes 50 ms for each GiB.
 * criu needs two things of smaps: the areas, which /proc/PID/maps has too, and their flags. The
 * helper reads the flags before the freeze and after the thaw. Where both are equal, the flags were
 * the same during the freeze. Where they differ, the dump fails. If an area did not exist before
 * the freeze, criu reads smaps itself.
 */
#include <fcntl.h>
#include <string.h>
#include "live.h"
#include "zns-memfd.h"
#include "zns-smaps.h"
#include "zns/grow.h"

#define SMAPS_MAX GIB(1) /* most bytes of smaps text that are read */
#define FLAGS "VmFlags:"

/* An area: its line in maps, and its flags. Both point into the text and have no newline. */
struct live_area {
	const char *line, *flags;
	uint32_t line_len, flags_len;
};

static bool is_range(const char *s)
{
	return *s && strspn(s, "0123456789abcdef") && s[strspn(s, "0123456789abcdef")] == '-';
}

static int add_line(struct live_maps *m, const char *s, size_t len)
{
	struct live_area *a;

	if (!strncmp(s, FLAGS, strlen(FLAGS))) {
		if (!m->nr)
			return -EBADMSG;
		a = &m->area[m->nr - 1];
		a->flags = s;
		a->flags_len = (uint32_t)len;
		return 0;
	}
	if (!is_range(s))
		return 0;
	if (zns_grow(m->area, m->nr, m->max))
		return -ENOMEM;
	m->area[m->nr++] = (struct live_area){ .line = s, .line_len = (uint32_t)len };
	return 0;
}

/* Reads the whole file in pieces. */
static int read_smaps(const char *path, char **text)
{
	char piece[ZNS_SMAPS_PIECE];
	FILE *f = fopen(path, "re");
	size_t size = 0;
	int ret = -EIO;

	if (!f)
		return -errno;
	if (!setvbuf(f, piece, _IOFBF, sizeof(piece)) && getdelim(text, &size, '\0', f) > 0)
		ret = 0;
	fclose(f);
	return ret;
}

/* Reads maps or smaps of a task. */
static int read_maps(struct live_maps *m, pid_t pid, const char *file)
{
	char path[64], *s, *end;
	size_t len;
	int ret;

	*m = (struct live_maps){ 0 };
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	ret = !strcmp(file, "smaps") ?
		      read_smaps(path, &m->text) :
		      zns_read_file(AT_FDCWD, path, SMAPS_MAX, (uint8_t **)&m->text, &len);
	for (s = m->text; !ret && (end = strchr(s, '\n')); s = end + 1) {
		*end = '\0';
		ret = add_line(m, s, (size_t)(end - s));
	}
	if (ret)
		live_maps_free(m);
	return ret;
}

void live_maps_free(struct live_maps *m)
{
	free(m->area);
	free(m->text);
	*m = (struct live_maps){ 0 };
}

/* Returns the area of @m whose line in maps equals that of @a; NULL: none. Both lists are sorted by
 * address, so the search goes on at *@at. */
static const struct live_area *same_area(const struct live_maps *m, size_t *at,
					 const struct live_area *a)
{
	uint64_t start = strtoull(a->line, NULL, 16);

	while (*at < m->nr && strtoull(m->area[*at].line, NULL, 16) < start)
		++*at;
	return *at < m->nr && !strcmp(m->area[*at].line, a->line) ? &m->area[*at] : NULL;
}

void live_maps_before(struct live_task *t)
{
	live_maps_free(&t->before);
	read_maps(&t->before, t->pid, "smaps"); /* if this fails, criu reads smaps itself */
}

static int write_maps(struct live_task *t, int fd)
{
	cleanup_free char *out = malloc(t->text_bytes + 1);
	size_t at = 0, len = 0;

	if (!out)
		return -ENOMEM;
	for (size_t n = 0; n < t->frozen.nr; n++) {
		struct live_area *a = &t->frozen.area[n];
		const struct live_area *b = same_area(&t->before, &at, a);

		if (!b || !b->flags)
			return -ENOENT;
		a->flags = b->flags;
		a->flags_len = b->flags_len;
		len += (size_t)sprintf(out + len, "%s\n%s\n", a->line, a->flags);
	}
	return zns_pwrite_all(fd, out, len, 0);
}

/* Computes the length of the text with all areas and their flags. */
static void count_text(struct live_task *t)
{
	uint32_t most = 0;

	t->text_bytes = 0;
	for (size_t n = 0; n < t->before.nr; n++)
		most = zns_max(most, t->before.area[n].flags_len);
	for (size_t n = 0; n < t->frozen.nr; n++)
		t->text_bytes += t->frozen.area[n].line_len + most + 2;
}

int live_maps(struct live *l, struct packet *p, struct zns_err *err)
{
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	struct live_task *t = l ? live_find(l, p->h.pid) : NULL;
	cleanup_close int fd = -1;

	if (!l)
		return zns_fail(
			err, -EPROTO,
			"criu asked for the areas of a task at a wrong time: criu and zns-helper may be of different builds");
	if (t && t->before.nr && !read_maps(&t->frozen, t->pid, "maps")) {
		fd = zns_memfd("zns-smaps");
		count_text(t);
		if (fd >= 0 && !write_maps(t, fd))
			r.kind = ZW_KIND_FD;
		else
			live_maps_free(&t->frozen);
	}
	reply_send(p->nr_fd ? p->fd[0] : -1, &r, r.kind == ZW_KIND_FD ? fd : -1);
	return 0;
}

/*
 * May this flag differ between the two reads? Tracking itself sets some. Others are advice to the
 * kernel (huge pages, merging, read-ahead). These are restored as they were before the freeze, so a
 * wrong one only costs time.
 */
static bool may_differ(const char *flag)
{
	static const char *const may[] = { "uw", "um", "hg", "nh", "mg", "sr", "rr" };

	for (size_t n = 0; n < ZNS_ARRAY_SIZE(may); n++)
		if (!strcmp(flag, may[n]))
			return true;
	return false;
}

/*
 * Compares two lists of flags. A flag that only one list has makes them different, unless it may
 * differ.
 */
static bool same_flags(const char *a, const char *b)
{
	for (const char *s = a; *s;) {
		char word[4] = "";
		size_t len;

		s += strspn(s, " ");
		len = strcspn(s, " ");
		if (len == 2) {
			memcpy(word, s, 2);
			if (!may_differ(word) && !strstr(b, word))
				return false;
		}
		s += len;
	}
	return true;
}

int live_maps_check(struct live_task *t, struct zns_err *err)
{
	struct live_maps after;
	size_t at = 0;
	int ret = 0;

	/* the task may have exited meanwhile */
	if (!t->frozen.nr || read_maps(&after, t->pid, "smaps"))
		return 0;
	for (size_t n = 0; n < t->frozen.nr && !ret; n++) {
		const struct live_area *f = &t->frozen.area[n], *a = same_area(&after, &at, f);

		if (!a || !a->flags ||
		    (same_flags(a->flags, f->flags) && same_flags(f->flags, a->flags)))
			continue;
		ret = zns_fail(
			err, -EAGAIN,
			"task %d changed flags of its memory at %.32s while it was dumped, as by mlock: "
			"dump it again, or with --zns-live=no",
			t->pid, f->line);
	}
	live_maps_free(&after);
	return ret;
}
