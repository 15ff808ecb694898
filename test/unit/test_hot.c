/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory that restores share (zns/hot.h), and readers over it: each unit is read from the device
 * once, whichever process dies, and data that another process wrote there are never trusted.
 * transform_in is wrapped (Makefile): if its verdict is ignored, the same hostile bytes must get
 * through.
 */
#include "stripe_fixture.h"
#include "zns/hot.h"
#include "../../zns/stripe/transform.h"

#define UNIT KIB(64)
#define SLOTS \
	128 /* so many that no unit of a checkpoint takes another one's slot, whatever their names */
#define BIG MIB(2)

static struct rig rig;
static atomic_bool believe; /* the control: every unit counts as right */

int __real_transform_in(const struct zns_crypt *c, const struct zns_memory_key *m,
			const ZnsPb__Image *pb, uint32_t image, uint64_t unit, uint8_t *buf,
			size_t len, struct zns_err *e);
int __wrap_transform_in(const struct zns_crypt *c, const struct zns_memory_key *m,
			const ZnsPb__Image *pb, uint32_t image, uint64_t unit, uint8_t *buf,
			size_t len, struct zns_err *e);

int __wrap_transform_in(const struct zns_crypt *c, const struct zns_memory_key *m,
			const ZnsPb__Image *pb, uint32_t image, uint64_t unit, uint8_t *buf,
			size_t len, struct zns_err *e)
{
	int ret = __real_transform_in(c, m, pb, image, unit, buf, len, e);

	return believe ? 0 : ret;
}

/* --- the memory --- */

static const struct zns_hot_shape shape = { RIG_ZONES, SLOTS, UNIT };

static struct zns_hot *hot_of(const struct zns_hot_shape *s)
{
	struct zns_hot *h;

	assert_ok(zns_hot_new(s, &h, &err));
	for (uint32_t z = 0; z < s->nr_zones; z++)
		zns_hot_keep(h, z, UINT64_MAX);
	return h;
}

static struct zns_hot *join(struct zns_hot *broker, const struct zns_hot_shape *s, uint32_t owner)
{
	struct zns_hot *h;

	assert_ok(zns_hot_join(dup(zns_hot_fd(broker)), s, owner, &h, &err));
	return h;
}

static struct zns_hot_unit unit_at(uint64_t n)
{
	return (struct zns_hot_unit){
		.zone = (uint32_t)(n % RIG_ZONES), .len = UNIT, .off = n * UNIT, .sum = n ^ 0x5a5a
	};
}

static void bring(struct zns_hot *h, uint64_t n)
{
	cleanup_free uint8_t *buf = malloc(UNIT);
	struct zns_hot_unit u = unit_at(n);
	struct zns_hot_place at;

	fill(buf, 0, UNIT, n);
	assert_int_equal(zns_hot_get(h, &u, NULL, true, &at), ZNS_HOT_FILL);
	zns_hot_put(h, &u, &at, buf);
}

/* Is unit @n there? Then it must be right. */
static bool there(struct zns_hot *h, uint64_t n)
{
	cleanup_free uint8_t *buf = malloc(UNIT), *want = malloc(UNIT);
	struct zns_hot_unit u = unit_at(n);
	struct zns_hot_place at;

	if (zns_hot_get(h, &u, buf, false, &at) != ZNS_HOT_HAVE)
		return false;
	fill(want, 0, UNIT, n);
	assert_memory_equal(buf, want, UNIT);
	return true;
}

static void bounded(void **state)
{
	struct zns_hot *b = hot_of(&shape), *h = join(b, &shape, 1);
	uint32_t kept = 0;
	struct stat st;

	for (uint64_t n = 0; n < 20 * SLOTS; n++) {
		bring(h, n);
		assert_true(there(h, n));
	}
	for (uint64_t n = 0; n < 20 * SLOTS; n++)
		kept += there(h, n);
	assert_in_range(kept, SLOTS / 2, SLOTS);
	assert_int_equal(fstat(zns_hot_fd(b), &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 <= (uint64_t)SLOTS * UNIT + KIB(64));
	assert_int_equal(zns_hot_slots(MIB(256), KIB(512)), 512);
	assert_int_equal(zns_hot_slots(MIB(1), KIB(512)), 0);
	zns_hot_free(h);
	zns_hot_free(b);
}

/* After a reset no unit from before is found, though its bytes and its sum are the same. */
static void stale(void **state)
{
	struct zns_hot *b = hot_of(&shape), *h = join(b, &shape, 1);
	struct zns_hot_unit u = unit_at(7);
	uint8_t buf[UNIT] = { 0 };
	struct zns_hot_place at;

	bring(h, 7);
	bring(h, 8);
	assert_true(there(h, 7));
	/* a unit that is being read into the shared memory when its zone is reset */
	u = unit_at(7 + RIG_ZONES);
	assert_int_equal(zns_hot_get(h, &u, buf, true, &at), ZNS_HOT_FILL);
	zns_hot_forget_zone(b, 7);
	zns_hot_put(h, &u, &at, buf);
	assert_int_equal(zns_hot_get(h, &u, buf, false, &at), ZNS_HOT_NONE);
	assert_false(there(h, 7));
	assert_true(there(h, 8));
	zns_hot_keep(b, 8, 1);
	assert_false(zns_hot_wanted(h, 8));
	assert_true(zns_hot_wanted(h, 7));
	assert_false(zns_hot_wanted(h, RIG_ZONES));
	zns_hot_free(h);
	zns_hot_free(b);
}

/* Refused: a memory that can shrink while it is mapped (whoever reads it would die of SIGBUS), a
 * descriptor that is no memfd, and a shape that does not fit the memory. */
static void strange_memory(void **state)
{
	struct zns_hot_shape other = shape;
	struct zns_hot *b = hot_of(&shape), *h;
	int fd = memfd_create("open", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, MIB(64)), 0);
	assert_int_equal(zns_hot_join(fd, &shape, 1, &h, &err), -EPROTO);
	assert_int_equal(zns_hot_join(open("/dev/zero", O_RDWR), &shape, 1, &h, &err), -EPROTO);
	other.nr_slots *= 2;
	assert_int_equal(zns_hot_join(dup(zns_hot_fd(b)), &other, 1, &h, &err), -EPROTO);
	other = shape;
	other.nr_slots = 7;
	assert_int_equal(zns_hot_join(dup(zns_hot_fd(b)), &other, 1, &h, &err), -EINVAL);
	assert_int_equal(ftruncate(zns_hot_fd(b), 0), -1);
	zns_hot_free(b);
}

/* Processes that get the right to read a unit for all, and are killed before they have done it. */
static void dead_bringer(void **state)
{
	struct zns_hot *b = hot_of(&shape), *h = join(b, &shape, 1);
	struct zns_hot_figures f;
	struct zns_hot_place at;
	struct zns_hot_unit u;
	uint8_t buf[UNIT];
	int to[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(to), 0);
	pid = fork();
	if (!pid) {
		struct zns_hot *k = join(b, &shape, 2);

		for (uint64_t n = 0; n < 4; n++) {
			u = unit_at(n);
			if (zns_hot_get(k, &u, buf, true, &at) != ZNS_HOT_FILL)
				_exit(1);
		}
		if (write(to[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(to[0], &c, 1), 1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* nobody reports it: the wait ends by its limit, and the next process gets the right to
	 * bring the unit */
	u = unit_at(0);
	assert_int_equal(zns_hot_get(h, &u, buf, false, &at), ZNS_HOT_NONE);
	assert_int_equal(zns_hot_get(h, &u, buf, true, &at), ZNS_HOT_FILL);
	fill(buf, 0, UNIT, 0);
	zns_hot_put(h, &u, &at, buf);
	assert_true(there(h, 0));
	zns_hot_figures(h, &f);
	assert_int_equal(f.late, 2);
	/* the broker reports it: no process waits */
	zns_hot_forget_owner(b, 2);
	for (uint64_t n = 1; n < 4; n++)
		bring(h, n);
	zns_hot_figures(h, &f);
	assert_int_equal(f.late, 2);
	assert_int_equal(f.filled, 4);
	zns_hot_free(h);
	zns_hot_free(b);
	close(to[0]);
	close(to[1]);
}

/* Somebody scribbles over the head: every call returns, and after some trouble one does without. */
static void scribbled_head(void **state)
{
	struct zns_hot *b = hot_of(&shape), *h = join(b, &shape, 1);
	size_t bytes = (size_t)(RIG_ZONES * 16 + SLOTS * 24 + 4096);
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, zns_hot_fd(b), 0);
	cleanup_free uint8_t *buf = malloc(UNIT);
	struct zns_hot_place at;

	assert_true(p != MAP_FAILED);
	for (int round = 0; round < 200; round++) {
		struct zns_hot_unit u = unit_at((uint64_t)round);

		for (size_t n = 0; n < bytes; n++)
			p[n] = (uint8_t)rnd(256);
		if (!zns_hot_wanted(h, 1) && round > 100)
			break;
		switch (zns_hot_get(h, &u, buf, round & 1, &at)) {
		case ZNS_HOT_HAVE:
			zns_hot_wrong(h, &at);
			break;
		case ZNS_HOT_FILL:
			zns_hot_put(h, &u, &at, buf);
			break;
		case ZNS_HOT_NONE:
			break;
		}
	}
	munmap(p, bytes);
	zns_hot_free(h);
	zns_hot_free(b);
}

/* So no wait for a unit expires, however slow this machine is. */
static void stop_clock(void)
{
	char clock[192];

	snprintf(clock, sizeof(clock), "%s/clock", test_dir);
	zns_clock_stop(clock);
}

/* Eight processes want the same units in different orders. The one that brings a unit waits until
 * another process asks for it. */
#define CROWD 8
#define WANTED 40
static void crowd(void **state)
{
	struct zns_hot *b = hot_of(&shape);
	struct {
		atomic_int reads, asked[WANTED];
	} *all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	pid_t pid[CROWD];

	assert_true(all != MAP_FAILED);
	stop_clock();
	for (int k = 0; k < CROWD; k++) {
		pid[k] = fork();
		if (pid[k])
			continue;
		struct zns_hot *h = join(b, &shape, (uint32_t)k + 1);
		uint8_t buf[UNIT], want[UNIT];

		for (uint64_t n = 0; n < WANTED; n++) {
			uint64_t i = k % 2 ? WANTED - 1 - n : n;
			struct zns_hot_unit u = unit_at(i);
			struct zns_hot_place at;

			fill(want, 0, UNIT, i);
			atomic_fetch_add(&all->asked[i], 1);
			switch (zns_hot_get(h, &u, buf, true, &at)) {
			case ZNS_HOT_HAVE:
				if (memcmp(buf, want, UNIT))
					_exit(1);
				break;
			case ZNS_HOT_FILL:
				while (atomic_load(&all->asked[i]) < 2)
					sched_yield();
				atomic_fetch_add(&all->reads, 1);
				zns_hot_put(h, &u, &at, want);
				break;
			case ZNS_HOT_NONE:
				_exit(2);
			}
		}
		_exit(0);
	}
	for (int k = 0; k < CROWD; k++) {
		int status;

		assert_int_equal(waitpid(pid[k], &status, 0), pid[k]);
		assert_int_equal(status, 0);
	}
	/* Two may take two slots for one unit, but that is rare. */
	print_message("%d processes, %d units: %d reads\n", CROWD, WANTED, all->reads);
	assert_in_range(all->reads, WANTED, WANTED + WANTED / 10);
	zns_clock_run();
	munmap(all, sizeof(*all));
	zns_hot_free(b);
}

/* --- readers over it --- */

static struct image images[2];
static struct proxy proxy;

/* A checkpoint of a large and a small image on a device that counts. */
static void checkpoint(bool encrypted)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	char key[192], spec[208];
	struct zns_master *m = NULL;
	struct zns_dev *d;

	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	assert_ok(zns_dev_open(dev_spec, 0, &d, &err));
	rig_init(&rig, d, UNIT, 4);
	if (encrypted) {
		rig.has_id = true;
		assert_int_equal(zns_uuid_generate(rig.id), 0);
		snprintf(key, sizeof(key), "%s/key", test_dir);
		snprintf(spec, sizeof(spec), "file:%s", key);
		assert_ok(zns_master_create(key, &err));
		assert_ok(zns_master_load(spec, &m, &err));
		assert_ok(zns_crypt_new(m, rig.id, &rig.crypt, &err));
		zns_master_free(m);
	}
	rig_start(&rig);
	image_set(&images[0], BIG, "pages-%u.img", 1);
	image_set(&images[1], 5000, "core-%u.img", 2);
	images[0].pages = true;
	for (int n = 0; n < 2; n++)
		assert_ok(feed(rig.w, &images[n], KIB(256), &err));
	rig_finish(&rig);
	proxy_init(&proxy, d);
}

static void away(void)
{
	struct zns_dev *d = proxy.inner;

	rig_drop(&rig);
	zns_dev_close(d);
	unlink(dev_path);
}

static struct zns_reader *reader(struct zns_hot *h)
{
	struct zns_reader_params p = {
		.dev = &proxy.dev, .workers = 4, .crypt = rig.crypt, .hot = h
	};
	struct zns_reader *rd = NULL;

	assert_ok(zns_reader_new(&p, rig.m, &rd, &err));
	return rd;
}

/* Reads both images through memory shared as @owner; returns whether they are right. */
static bool right(struct zns_hot *b, uint32_t owner)
{
	struct zns_hot *h = join(b, &shape, owner);
	struct zns_reader *rd = reader(h);
	bool same = true;

	for (int n = 0; n < 2; n++) {
		const struct image *im = &images[n];
		cleanup_free uint8_t *got = malloc(im->len), *want = malloc(im->len);

		assert_ok(zns_rimage_read(zns_reader_find(rd, im->name), 0, got, im->len, &err));
		fill(want, 0, im->len, im->seed);
		same &= !memcmp(got, want, im->len);
	}
	zns_reader_free(rd);
	zns_hot_free(h);
	return same;
}

struct one {
	struct zns_hot *b;
	uint32_t owner;
};

static void *read_all(void *arg)
{
	const struct one *o = arg;

	return right(o->b, o->owner) ? NULL : arg;
}

/* Readers at once, each unit read once. */
static void shared_reads(void **state)
{
	for (int encrypted = 0; encrypted < 2; encrypted++) {
		struct zns_hot *b = hot_of(&shape);
		struct one who[CROWD];
		pthread_t t[CROWD];
		int once;
		void *bad;

		checkpoint(encrypted);
		assert_true(right(b, 1));
		once = atomic_load(&proxy.read);
		assert_true(once >= (int)(BIG / UNIT));
		zns_hot_free(b);
		b = hot_of(&shape);
		atomic_store(&proxy.read, 0);
		proxy.read_us = 500;
		stop_clock();
		for (uint32_t n = 0; n < CROWD; n++) {
			who[n] = (struct one){ b, n + 1 };
			assert_int_equal(pthread_create(&t[n], NULL, read_all, &who[n]), 0);
		}
		for (int n = 0; n < CROWD; n++) {
			assert_int_equal(pthread_join(t[n], &bad), 0);
			assert_null(bad);
		}
		zns_clock_run();
		print_message("%d readers: %d reads, one alone: %d\n", CROWD, proxy.read, once);
		assert_in_range(proxy.read, once, once + once / 10);
		zns_hot_free(b);
		away();
	}
}

/* Unless zones are marked, nothing is shared and nothing is kept. */
static void cold(void **state)
{
	struct zns_hot_figures f;
	struct zns_hot *b;
	int once;

	checkpoint(false);
	assert_ok(zns_hot_new(&shape, &b, &err));
	assert_true(right(b, 1));
	once = atomic_load(&proxy.read);
	assert_true(right(b, 2));
	assert_int_equal(proxy.read, 2 * once);
	zns_hot_figures(b, &f);
	assert_int_equal(f.filled, 0);
	zns_hot_free(b);
	away();
}

static off_t first_slot(struct zns_hot *b)
{
	struct stat st;

	assert_int_equal(fstat(zns_hot_fd(b), &st), 0);
	return st.st_size - (off_t)SLOTS * UNIT;
}

/* Changes a byte in every 4 KiB of all slots. */
static void corrupt(struct zns_hot *b)
{
	off_t at = first_slot(b);

	for (off_t end = at + (off_t)SLOTS * UNIT; at < end; at += 4096)
		assert_int_equal(pwrite(zns_hot_fd(b), "\xee", 1, at), 1);
}

/* Another participant, even of another user, writes anything it likes under right names. */
static void hostile(void **state)
{
	for (int encrypted = 0; encrypted < 2; encrypted++) {
		struct zns_hot *b = hot_of(&shape);
		struct zns_hot_figures f;
		pid_t pid;
		int once, status;

		checkpoint(encrypted);
		assert_true(right(b, 1));
		once = atomic_load(&proxy.read);
		pid = fork();
		if (!pid) {
			if (setresuid(65534, 65534, 65534))
				_exit(2);
			corrupt(b);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		atomic_store(&proxy.read, 0);
		assert_true(right(b, 2));
		zns_hot_figures(b, &f);
		assert_true(f.wrong > 0);
		/* wrong units were read from the device again; after some of them, all units */
		assert_int_equal(proxy.read, once);
		if (!encrypted) {
			/* the control */
			zns_hot_free(b);
			b = hot_of(&shape);
			assert_true(right(b, 1));
			corrupt(b);
			believe = true;
			assert_false(right(b, 2));
			believe = false;
		}
		zns_hot_free(b);
		away();
	}
}

/* Bytes that change while they are read: a writer that never stops. */
static void *scribble(void *arg)
{
	struct one *o = arg;
	off_t at = first_slot(o->b);
	uint64_t n = 1;

	while (atomic_load((_Atomic uint32_t *)&o->owner)) {
		uint64_t off = rnd_of(&n, (uint64_t)SLOTS * UNIT - 8);

		assert_int_equal(pwrite(zns_hot_fd(o->b), &n, 8, at + (off_t)off), 8);
	}
	return NULL;
}

static void changing(void **state)
{
	struct zns_hot *b = hot_of(&shape);
	struct one o = { b, 1 };
	struct zns_hot_figures f = { 0 };
	pthread_t t;

	checkpoint(false);
	assert_int_equal(pthread_create(&t, NULL, scribble, &o), 0);
	for (uint32_t n = 0; n < 30 || (!f.wrong && n < 100000); n++) {
		assert_true(right(b, n + 1));
		zns_hot_figures(b, &f);
	}
	atomic_store((_Atomic uint32_t *)&o.owner, 0);
	pthread_join(t, NULL);
	zns_hot_figures(b, &f);
	assert_true(f.had > 0 && f.wrong > 0);
	zns_hot_free(b);
	away();
}

/* Encrypted units stay so: none of the images' bytes are in the shared memory. */
static void ciphertext(void **state)
{
	struct zns_hot *b = hot_of(&shape);
	size_t len = SLOTS * UNIT;
	cleanup_free uint8_t *all = malloc(len), *want = malloc(64);

	checkpoint(true);
	assert_true(right(b, 1));
	assert_ok(zns_pread_all(zns_hot_fd(b), all, len, first_slot(b)));
	for (uint64_t off = 0; off < BIG; off += KIB(16)) {
		fill(want, off, 64, images[0].seed);
		assert_null(memmem(all, len, want, 64));
	}
	assert_true(right(b, 2));
	zns_hot_free(b);
	away();
}

/* Damage on the device is found as without shared memory, and no restore gets the unit. */
static void damaged(void **state)
{
	struct zns_hot *b = hot_of(&shape), *h = join(b, &shape, 1);
	uint64_t was;
	uint8_t *buf;

	checkpoint(false);
	was = rig.m->images[0]->csums[5];
	buf = malloc(BIG);
	for (int round = 0; round < 2; round++) {
		struct zns_reader *rd = reader(h);

		rig.m->images[0]->csums[5] ^= 1;
		assert_int_equal(zns_rimage_read(zns_reader_find(rd, images[0].name), 0, buf, BIG,
						 &err),
				 -EBADMSG);
		assert_non_null(strstr(err.msg, "is damaged"));
		rig.m->images[0]->csums[5] = was;
		zns_reader_free(rd);
	}
	free(buf);
	zns_hot_free(h);
	assert_true(right(b, 2));
	zns_hot_free(b);
	away();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bounded),        T(stale),    T(strange_memory), T(dead_bringer),
		T(scribbled_head), T(crowd),    T(cold),           T(hostile),
		T(shared_reads),   T(changing), T(ciphertext),     T(damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
