/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping writer: what it takes from files, from pipes, and from the memory of a task. */
#include "stripe_fixture.h"

#define MAX_IMAGES 100

static struct image im[MAX_IMAGES];

static void *dribble(void *arg)
{
	const struct image *i = ((void **)arg)[0];
	int fd = (int)(intptr_t)((void **)arg)[1];
	cleanup_free uint8_t *buf = malloc(i->len + 1);
	uint64_t rng = 77;

	fill(buf, 0, i->len, i->seed);
	for (uint64_t off = 0, n; off < i->len; off += n) {
		n = 1 + rnd_of(&rng, 100000);
		n = zns_min(i->len - off, n);
		if (zns_write_all(fd, buf + off, n))
			break;
	}
	close(fd);
	return NULL;
}

static void from_fds(void **state)
{
	const uint64_t len[] = { 0,           1,       4096,        KIB(32),  KIB(32) + 1,
				 KIB(64) - 1, KIB(64), KIB(64) + 1, KIB(640), 1234567 };
	struct zns_emu_params p = roomy(24, KIB(960));
	size_t nr = 0;
	struct rig r;

	rig_init(&r, make_dev(&p), KIB(64), 3);
	rig_start(&r);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(len); i++) {
		struct zns_wimage *w;
		void *arg[2];
		pthread_t t;
		int fd, pfd[2];

		image_set(&im[nr], len[i], "memfd-%u", nr);
		fd = memfd_of(&im[nr]);
		assert_ok(zns_writer_image(r.w, im[nr].name, false, &w, &err));
		assert_ok(zns_wimage_from_fd(w, fd, &err));
		close(fd);
		assert_ok(zns_wimage_seal(w, &err));
		nr++;
		image_set(&im[nr], len[i], "pipe-%u", nr);
		assert_int_equal(pipe(pfd), 0);
		arg[0] = &im[nr];
		arg[1] = (void *)(intptr_t)pfd[1];
		assert_int_equal(pthread_create(&t, NULL, dribble, arg), 0);
		assert_ok(zns_writer_image(r.w, im[nr].name, false, &w, &err));
		assert_ok(zns_wimage_from_fd(w, pfd[0], &err));
		pthread_join(t, NULL);
		close(pfd[0]);
		assert_ok(zns_wimage_seal(w, &err));
		nr++;
	}
	rig_verify(&r, im, nr);
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* --- task memory --- */

#define PAGES 3200
static uint8_t *area; /* the same address in the task, filled from seed 9 before the fork */

static void hide_pages(char c)
{
	for (size_t n = 0; n < PAGES; n += 97)
		mprotect(area + n * 4096, n % 2 ? 4096 : 8192, PROT_NONE);
}

static void task_with_area(struct task *t, void (*fn)(char))
{
	area = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(area, MAP_FAILED);
	fill(area, 0, PAGES * 4096, 9);
	task_start(t, fn);
	memset(area, 0xee, PAGES * 4096); /* the task keeps its own copy of the old bytes */
}

/* Give the iovecs to the image in messages of at most @batch; expect what they held. */
static void feed_mem(struct rig *r, const char *name, pid_t pid, const struct iovec *iov,
		     uint32_t nr, uint32_t batch)
{
	struct zns_wimage *i;

	assert_ok(zns_writer_image(r->w, name, true, &i, &err));
	for (uint32_t n = 0; n < nr; n += batch)
		assert_ok(zns_wimage_mem(i, pid, iov + n, zns_min(batch, nr - n), &err));
	assert_ok(zns_wimage_settle(i, &err));
	assert_ok(zns_wimage_seal(i, &err));
}

static void check_mem(struct zns_reader *rd, const char *name, const struct iovec *iov, uint32_t nr)
{
	struct zns_rimage *i = zns_reader_find(rd, name);
	cleanup_free uint8_t *got = NULL, *want = NULL;
	uint64_t len = 0;

	for (uint32_t n = 0; n < nr; n++)
		len += iov[n].iov_len;
	assert_non_null(i);
	assert_int_equal(zns_rimage_size(i), len);
	got = malloc(len + 1);
	want = malloc(len + 1);
	assert_ok(zns_rimage_read(i, 0, got, len, &err));
	len = 0;
	for (uint32_t n = 0; n < nr; n++) {
		fill(want + len, (uint64_t)((uint8_t *)iov[n].iov_base - area), iov[n].iov_len, 9);
		len += iov[n].iov_len;
	}
	assert_memory_equal(got, want, len);
}

enum { WHOLE, EVERY_OTHER, SHREDS, EMPTY, MIXED, NR_LISTS };

static uint32_t make_list(int kind, struct iovec *v, uint32_t max)
{
	uint32_t n = 0;

	switch (kind) {
	case WHOLE:
		v[n++] = (struct iovec){ area, PAGES * 4096 };
		break;
	case EVERY_OTHER:
		for (uint32_t p = 0; p < PAGES; p += 2)
			v[n++] = (struct iovec){ area + p * 4096, 4096 };
		break;
	case SHREDS: /* far more than 1024 in one unit, none of them touching */
		while (n < 5000 && n < max) {
			v[n] = (struct iovec){ area + n * 100 + 3, 13 + n % 50 };
			n++;
		}
		break;
	case EMPTY:
		v[n++] = (struct iovec){ area, 0 };
		break;
	default:
		for (uint32_t p = 0; n < 1500 && n < max; n++) {
			uint32_t pages = n % 7 ? 1 + n % 3 : 0;

			v[n] = (struct iovec){ area + p * 4096, pages * 4096 };
			p += pages + n % 2;
			p %= PAGES - 10;
		}
	}
	return n;
}

static void task_memory(struct task *t, uint32_t unit, uint32_t batch)
{
	static struct iovec v[NR_LISTS][5000];
	struct zns_emu_params p = roomy(40, MIB(8));
	struct zns_reader *rd;
	uint32_t nr[NR_LISTS];
	char name[32];
	struct rig r;

	unlink(dev_path);
	rig_init(&r, make_dev(&p), unit, 4);
	rig_start(&r);
	for (int k = 0; k < NR_LISTS; k++) {
		nr[k] = make_list(k, v[k], ZNS_ARRAY_SIZE(v[k]));
		snprintf(name, sizeof(name), "pages-%d.img", k);
		feed_mem(&r, name, t->pid, v[k], nr[k], batch);
	}
	rig_finish(&r);
	rd = rig_reader(&r, 0, 0);
	for (int k = 0; k < NR_LISTS; k++) {
		snprintf(name, sizeof(name), "pages-%d.img", k);
		check_mem(rd, name, v[k], nr[k]);
	}
	zns_reader_free(rd);
	rig_drop(&r);
	zns_dev_close(r.d);
}

static void memory_of_a_task(void **state)
{
	struct task t;

	task_with_area(&t, hide_pages);
	task_memory(&t, KIB(256), 1024);
	task_memory(&t, KIB(64), 7);
	task_memory(&t, MIB(4), 1024);
	/* the same with pages that process_vm_readv refuses */
	task_do(&t, 'h');
	task_memory(&t, KIB(256), 1024);
	task_memory(&t, MIB(4), 1024);
	task_end(&t);
	munmap(area, PAGES * 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(from_fds),
		T(memory_of_a_task),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
