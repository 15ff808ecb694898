/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a pager leaves in the processes that it serves, and believes of them. They may be hostile.
 */
#include <dirent.h>

#include "mem_reach.h"

#define MANY 512U /* pages */

static void sleeper(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
}

/* Entries of /proc/@pid/@dir of which @what tells @word. */
static unsigned int count(pid_t pid, const char *dir, const char *what, const char *word)
{
	char path[64], name[400], text[256];
	unsigned int n = 0;
	struct dirent *d;
	DIR *l;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, dir);
	l = opendir(path);
	assert_non_null(l);
	while ((d = readdir(l))) {
		ssize_t len;

		snprintf(name, sizeof(name), "%s/%s%s", path, d->d_name, what);
		len = *what ? -1 : readlink(name, text, sizeof(text) - 1);
		if (*what) {
			int fd = open(name, O_RDONLY | O_CLOEXEC);

			len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
			close(fd);
		}
		text[len > 0 ? len : 0] = '\0';
		n += strstr(text, word) != NULL;
	}
	closedir(l);
	return n;
}

/* A ring would be memory that both write: its descriptor here, its thread there. */
static void no_ring(void **state)
{
	static struct play s;

	play_begin(&s, sleeper);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	assert_int_equal(count(getpid(), "fd", "", "io_uring"), 0);
	assert_int_equal(count(s.pid, "fd", "", "anon_inode"), 0);
	assert_int_equal(count(s.pid, "task", "/comm", ""), 2 + 1); /* two are . and .. */
	do_step(&s, 2);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_ring),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
