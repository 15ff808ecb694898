/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * See lines.h. The file is read and not mapped: if it were mapped and somebody truncated it, the
 * pager would be killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"
#include "zns/util.h"

#define NAME "dram.table"
#define VERSION 1U
#define TRIES 3 /* number of attempts to read a line that is being written at that moment */

struct stored {
	uint64_t check; /* checksum of all that follows */
	uint32_t version, len;
	struct dram_line line;
};

static off_t place(unsigned int i)
{
	return (off_t)(i * sizeof(struct stored));
}

static struct flock lock_of(unsigned int i)
{
	return (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place(i), .l_len = 1
	};
}

static uint64_t check_of(const struct stored *s)
{
	return zns_hash((const uint8_t *)s + sizeof(s->check), sizeof(*s) - sizeof(s->check));
}

int lines_open(struct lines *t, int dir, struct zns_err *err)
{
	struct stat st;
	int ret = 0;

	*t = (struct lines){ .fd = openat(dir, NAME,
					  O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY |
						  O_NONBLOCK,
					  0600) };
	if (t->fd < 0)
		return zns_fail_sys(err, -errno, "cannot open " NAME " of the memory contexts");
	if (fstat(t->fd, &st))
		ret = zns_fail_sys(err, -errno, NAME);
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077 ||
		 st.st_nlink != 1)
		ret = zns_fail(err, -EPERM,
			       NAME
			       " of the memory contexts is not a file of ours alone; remove it");
	while (!ret && t->own < LINES_MAX) {
		struct flock l = lock_of(t->own);

		if (!fcntl(t->fd, F_OFD_SETLK, &l))
			return 0;
		t->own++;
	}
	close(t->fd);
	t->fd = -1;
	return ret ? ret :
		     zns_fail(err, -ENOSPC, "more than %u contexts divide the DRAM", LINES_MAX);
}

void lines_close(struct lines *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}

int lines_write(const struct lines *t, const struct dram_line *line)
{
	struct stored s;

	memset(&s, 0, sizeof(s));
	s.version = VERSION;
	s.len = sizeof(s);
	s.line = *line;
	s.check = check_of(&s);
	return pwrite(t->fd, &s, sizeof(s), place(t->own)) == (ssize_t)sizeof(s) ? 0 : -EIO;
}

static bool lives(const struct lines *t, unsigned int i)
{
	struct flock l = lock_of(i);

	return i == t->own || (!fcntl(t->fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK);
}

static bool read_one(const struct lines *t, unsigned int i, struct dram_line *line)
{
	struct stored s;

	for (int k = 0; k < TRIES; k++) {
		if (pread(t->fd, &s, sizeof(s), place(i)) != (ssize_t)sizeof(s))
			return false;
		if (s.version != VERSION || s.len != sizeof(s) || s.check != check_of(&s))
			continue;
		*line = s.line;
		return true;
	}
	return false;
}

unsigned int lines_read(const struct lines *t, struct dram_line *line, unsigned int *own)
{
	unsigned int nr = 0;
	struct stat st;

	if (fstat(t->fd, &st))
		return 0;
	for (unsigned int i = 0; i < LINES_MAX && place(i + 1) <= st.st_size; i++) {
		if (!lives(t, i) || !read_one(t, i, &line[nr]))
			continue;
		if (i == t->own)
			*own = nr;
		nr++;
	}
	return nr;
}
