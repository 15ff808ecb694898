/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns a plain image directory into the checkpoint that a live dump would have made: writes the
 * pages of all tasks in rounds, many of them several times, one image for each round, and composes
 * the pages images of these. An earlier copy of a page gets wrong bytes, so that one which is read by
 * mistake is noticed. Prints one line of JSON; exit code 0: committed; 1: not; 2: wrong usage.
 */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "zns/grow.h"
#include "zns/safeopen.h"
#include "zns/save.h"

#define PAGE 4096
#define FILES 4096
#define ROUNDS_MAX 16
#define BLOCK 64 /* in pages; a later round copies the blocks in another order */

struct file {
	char name[64];
	uint8_t *bytes;
	uint64_t size, first; /* first: its first page among those of all tasks */
};

static struct composer {
	const char *container, *parent, *handle;
	uint32_t rounds, again; /* again: one page of so many is copied again in a round */
	uint64_t seed;
	struct file file[FILES];
	size_t nr_files;
	uint64_t pages; /* sum over all tasks */
	uint8_t **page; /* pages of all tasks */
	uint8_t *last; /* round whose copy counts, by page */
	uint64_t *at; /* its offset in that image, in bytes */
	struct zns_wimage *round[ROUNDS_MAX];
	struct zns_session s;
	struct zns_save v;
	uint64_t runs;
} x = { .rounds = 3, .again = 3, .seed = 1, .s = ZNS_SESSION_INIT };

static uint64_t rnd(uint64_t below)
{
	x.seed ^= x.seed << 13;
	x.seed ^= x.seed >> 7;
	x.seed ^= x.seed << 17;
	return (x.seed >> 11) % below;
}

static bool is_pages(const struct file *f)
{
	return !strncmp(f->name, "pages-", 6);
}

static int cmp_file(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static int read_dir(const char *path, struct zns_err *err)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return zns_fail_sys(err, -errno, "%s", path);
	while ((e = readdir(d))) {
		struct file *f = &x.file[x.nr_files];
		size_t len = strlen(e->d_name);
		struct stat st;
		int fd;

		if (len < 5 || strcmp(e->d_name + len - 4, ".img") || len >= sizeof(f->name))
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) || ++x.nr_files == FILES)
			return zns_fail_sys(err, fd < 0 ? -errno : -E2BIG, "%s", e->d_name);
		memcpy(f->name, e->d_name, len + 1);
		f->size = (uint64_t)st.st_size;
		f->bytes = f->size ? mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
		close(fd);
		if (f->bytes == MAP_FAILED)
			return zns_fail_sys(err, -errno, "%s", e->d_name);
	}
	closedir(d);
	qsort(x.file, x.nr_files, sizeof(x.file[0]), cmp_file);
	for (size_t n = 0; n < x.nr_files; n++)
		if (is_pages(&x.file[n])) {
			x.file[n].first = x.pages;
			x.pages += x.file[n].size / PAGE;
		}
	x.page = calloc(x.pages + 1, sizeof(*x.page));
	x.last = calloc(x.pages + 1, 1);
	x.at = calloc(x.pages + 1, sizeof(*x.at));
	if (!x.page || !x.last || !x.at)
		return zns_fail(err, -ENOMEM, "no memory");
	for (size_t n = 0; n < x.nr_files; n++)
		for (uint64_t p = 0; is_pages(&x.file[n]) && p < x.file[n].size / PAGE; p++)
			x.page[x.file[n].first + p] = x.file[n].bytes + p * PAGE;
	/* What was copied again, in later and later rounds. */
	for (uint64_t p = 0; p < x.pages; p++)
		for (uint32_t r = 1; r < x.rounds; r++)
			if (!rnd(x.again))
				x.last[p] = (uint8_t)r;
	return 0;
}

static int begin(struct zns_err *err)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	uint8_t parent[ZNS_UUID_LEN];
	struct zns_registered reg;
	int ret = zns_resolve_device(NULL, &reg, err);

	if (!ret)
		ret = zns_session_open(&x.s, &reg, ZNS_WRITES, err);
	x.v.s = &x.s;
	if (!ret && x.parent)
		ret = zns_broker_resolve_id(&x.s.broker, x.parent, parent, err);
	if (!ret)
		ret = zns_save_key(&x.v, err);
	q.container = (char *)x.container;
	q.has_parent = x.parent != NULL;
	if (x.parent)
		q.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, parent };
	return ret ? ret : zns_save_begin(&x.v, &q, err);
}

/* Writes a page of a round. It is stale if a later round has it, too. */
static int put_page(uint32_t round, uint64_t page, uint64_t *at, struct zns_err *err)
{
	static const uint8_t stale[PAGE] = { [0 ... PAGE - 1] = 0xee };
	const uint8_t *from = x.last[page] == round ? x.page[page] : stale;
	size_t done = 0;

	if (x.last[page] == round)
		x.at[page] = *at;
	*at += PAGE;
	while (done < PAGE) { /* units end anywhere */
		uint8_t *buf;
		size_t len;
		int ret = zns_wimage_room(x.round[round], &buf, &len, err);

		if (ret)
			return ret;
		len = zns_min(len, PAGE - done);
		memcpy(buf, from + done, len);
		done += len;
		ret = zns_wimage_filled(x.round[round], len, err);
		if (ret)
			return ret;
	}
	return 0;
}

static int write_round(uint32_t r, struct zns_err *err)
{
	uint64_t blocks = (x.pages + BLOCK - 1) / BLOCK, at = 0;
	cleanup_free uint64_t *order = malloc((blocks + 1) * sizeof(*order));
	char name[32];
	int ret;

	for (uint64_t b = 0; b < blocks; b++)
		order[b] = b;
	/* the first round copies the blocks in order */
	for (uint64_t b = 0; b < blocks && r; b++) {
		uint64_t other = rnd(blocks), was = order[b];

		order[b] = order[other];
		order[other] = was;
	}
	snprintf(name, sizeof(name), "live-%u.img", r);
	ret = zns_writer_image(x.v.w, name, true, &x.round[r], err);
	if (!ret)
		zns_wimage_set_part(x.round[r]);
	for (uint64_t b = 0; b < blocks && !ret; b++)
		for (uint64_t p = order[b] * BLOCK;
		     p < zns_min(x.pages, (order[b] + 1) * BLOCK) && !ret; p++)
			if (x.last[p] == r || (x.last[p] > r && (!r || !rnd(2))))
				ret = put_page(r, p, &at, err);
	return ret ? ret : zns_wimage_seal(x.round[r], err);
}

static int compose(const struct file *f, struct zns_err *err)
{
	uint64_t nr = f->size / PAGE;
	cleanup_free struct zns_image_run *run = calloc(nr + 1, sizeof(*run));

	for (uint64_t p = 0; p < nr; p++)
		run[p] = (struct zns_image_run){ PAGE, x.last[f->first + p], x.at[f->first + p] };
	for (uint64_t p = 0; p < nr; p++)
		x.runs += !p || run[p].source != run[p - 1].source ||
			  run[p].at != run[p - 1].at + PAGE;
	return zns_writer_compose(x.v.w, f->name, x.round, x.rounds, run, nr, err);
}

static int write_plain(const struct file *f, struct zns_err *err)
{
	struct zns_wimage *i;
	int ret = zns_writer_image(x.v.w, f->name, false, &i, err);

	if (!ret)
		ret = zns_wimage_data(i, f->bytes, f->size, err);
	return ret ? ret : zns_wimage_seal(i, err);
}

static int write_all(struct zns_err *err)
{
	bool whole = false;
	int ret = 0;

	for (uint32_t r = 0; r < x.rounds && !ret; r++)
		ret = write_round(r, err);
	for (size_t n = 0; n < x.nr_files && !ret; n++) {
		whole |= !strcmp(x.file[n].name, "pstree.img");
		ret = is_pages(&x.file[n]) ? compose(&x.file[n], err) :
					     write_plain(&x.file[n], err);
	}
	x.v.c->has_pre_dump = x.v.c->pre_dump = !whole;
	return ret ? ret : zns_save_publish(&x.v, err);
}

static int write_handle(struct zns_err *err)
{
	cleanup_close int dir = -1;

	if (!x.handle)
		return 0;
	if (mkdir(x.handle, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "%s", x.handle);
	dir = zns_open_dir(x.handle, err);
	return dir < 0 ? dir : zns_save_handle(&x.v, dir, err);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "container", required_argument, NULL, 'c' },
		{ "parent", required_argument, NULL, 'p' },
		{ "handle", required_argument, NULL, 'h' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "again", required_argument, NULL, 'a' },
		{ "seed", required_argument, NULL, 's' },
		{ 0 },
	};
	struct zns_err err = ZNS_ERR_INIT;
	char id[ZNS_UUID_STR];
	int c, ret;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'c')
			x.container = optarg;
		else if (c == 'p')
			x.parent = optarg;
		else if (c == 'h')
			x.handle = optarg;
		else if (c == 'r')
			x.rounds = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'a')
			x.again = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 's')
			x.seed = strtoull(optarg, NULL, 10);
		else
			optind = argc;
	}
	if (optind != argc - 1 || !x.container || !x.rounds || x.rounds > ROUNDS_MAX || !x.again ||
	    !x.seed) {
		fprintf(stderr,
			"usage: composer DIR --container NAME [--parent ID] [--handle NEWDIR] [--rounds N]\n"
			"                [--again N] [--seed N]\n"
			"A plain image directory onto the device of $ZNS_CONFIG, as a live dump writes it.\n");
		return 2;
	}
	ret = read_dir(argv[optind], &err);
	if (!ret)
		ret = begin(&err);
	if (!ret)
		ret = write_all(&err);
	if (!ret)
		ret = write_handle(&err);
	if (ret)
		fprintf(stderr, "composer: %s\n", err.msg);
	else
		printf("{\"id\":\"%s\",\"pages\":%llu,\"runs\":%llu,\"rounds\":%u}\n",
		       zns_uuid_format(x.v.id, id), (unsigned long long)x.pages,
		       (unsigned long long)x.runs, x.rounds);
	zns_save_end(&x.v);
	zns_session_close(&x.s);
	return ret != 0;
}
