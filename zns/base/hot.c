/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A cache of units that restores share; see zns/hot.h.
 *
 * It is a memfd of fixed size: a head that is mapped (zones, slots), then the bytes of the slots,
 * which are accessed by pread and pwrite, so that they do not count as memory of each helper. A
 * slot has a word with the name of its unit, a version and a state. Each change of that word is one
 * compare-and-swap, so there is no lock that a dying process could leave behind. A unit's name
 * depends on the generation of its zone: after a reset the old names are not looked up any more.
 *
 * A change of the version usually shows that a slot was reused while it was read. But only the
 * unit's checksum proves that the bytes are right, since a slow helper may still write into a slot
 * that was given to another one.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "zns-memfd.h"
#include "zns/hot.h"
#include "zns/util.h"

#define WAYS 16 /* number of slots among which a unit can be */
/* After this many waits in vain or wrong units this process stops using the cache. */
#define LATE_MAX 16
/* how often a lookup is repeated if other processes change the slots at the same time */
#define TRIES 64
#define WAIT_NS (ZNS_HOT_WAIT_MS * UINT64_C(1000000))
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum state { EMPTY, FILLING, READY };
#define STATE 3u
/* by how much a slot's version is incremented: the lower bits of the word are its state */
#define VERSION 4u
#define VERSIONS 0xfffcu
#define NAME (~UINT64_C(0xffff))

struct hot_zone {
	_Atomic uint64_t until_ns;
	_Atomic uint64_t generation;
};

struct hot_slot {
	_Atomic uint64_t word;
	_Atomic uint64_t used_ns; /* time of the last use, or when filling began */
	_Atomic uint32_t wakes; /* futex for those who wait for the slot */
	_Atomic uint32_t owner; /* the participant that fills the slot */
};

struct hot_head {
	_Atomic uint64_t filled, had, wrong, late;
	struct hot_zone zone[];
};

struct zns_hot {
	struct zns_hot_shape shape;
	int fd;
	uint32_t owner;
	size_t head_bytes;
	struct hot_head *head;
	struct hot_slot *slot;
	_Atomic uint32_t trouble;
};

uint32_t zns_hot_slots(uint64_t bytes, uint32_t slot_bytes)
{
	uint64_t n = slot_bytes ? bytes / slot_bytes : 0;

	return (uint32_t)zns_align_down(zns_min(n, (uint64_t)UINT32_MAX), (uint64_t)WAYS);
}

static size_t slots_at(const struct zns_hot_shape *s)
{
	return zns_align_up(sizeof(struct hot_head) + s->nr_zones * sizeof(struct hot_zone),
			    (size_t)64);
}

static size_t head_bytes(const struct zns_hot_shape *s)
{
	return zns_align_up(slots_at(s) + s->nr_slots * sizeof(struct hot_slot), (size_t)4096);
}

static off_t file_bytes(const struct zns_hot_shape *s)
{
	return (off_t)(head_bytes(s) + (uint64_t)s->nr_slots * s->slot_bytes);
}

static int attach(int fd, const struct zns_hot_shape *s, uint32_t owner, struct zns_hot **out,
		  struct zns_err *err)
{
	struct zns_hot *h = calloc(1, sizeof(*h));
	void *p;

	if (!h)
		return zns_fail(err, -ENOMEM, "no memory for shared units");
	*h = (struct zns_hot){ .shape = *s, .fd = fd, .owner = owner, .head_bytes = head_bytes(s) };
	p = mmap(NULL, h->head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		free(h);
		return zns_fail_sys(err, -errno, "no memory for shared units");
	}
	h->head = p;
	h->slot = (struct hot_slot *)((char *)p + slots_at(s));
	*out = h;
	return 0;
}

static int check_shape(const struct zns_hot_shape *s, struct zns_err *err)
{
	if (s->nr_slots && !(s->nr_slots % WAYS) && s->slot_bytes && !(s->slot_bytes % 4096))
		return 0;
	return zns_fail(err, -EINVAL, "impossible cache of shared units: %u slots of %u bytes",
			s->nr_slots, s->slot_bytes);
}

int zns_hot_new(const struct zns_hot_shape *s, struct zns_hot **out, struct zns_err *err)
{
	int fd, ret = check_shape(s, err);

	if (ret)
		return ret;
	fd = memfd_create("zns-hot", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("zns-hot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "no memory for shared units");
	if (ftruncate(fd, file_bytes(s)) || fcntl(fd, F_ADD_SEALS, SEALS))
		ret = zns_fail_sys(err, -errno, "no memory for shared units");
	if (!ret)
		ret = attach(fd, s, 0, out, err);
	if (ret)
		close(fd);
	return ret;
}

/* Takes only a sealed file: if it could shrink, access to the mapping would kill us with SIGBUS. */
int zns_hot_join(int fd, const struct zns_hot_shape *s, uint32_t owner, struct zns_hot **out,
		 struct zns_err *err)
{
	int seals = fcntl(fd, F_GET_SEALS), ret = check_shape(s, err);

	if (!ret &&
	    (seals < 0 || !(seals & F_SEAL_SHRINK) || lseek(fd, 0, SEEK_END) != file_bytes(s)))
		ret = zns_fail(err, -EPROTO, "the broker sent no memory for shared units");
	if (!ret)
		ret = attach(fd, s, owner, out, err);
	if (ret)
		close(fd);
	return ret;
}

int zns_hot_fd(const struct zns_hot *h)
{
	return h->fd;
}

void zns_hot_free(struct zns_hot *h)
{
	if (!h)
		return;
	munmap(h->head, h->head_bytes);
	close(h->fd);
	free(h);
}

static void wake(struct hot_slot *s)
{
	atomic_fetch_add(&s->wakes, 1);
	syscall(SYS_futex, &s->wakes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static enum state state_of(uint64_t word)
{
	return word & STATE;
}

static uint64_t next_word(uint64_t word, uint64_t name, enum state state)
{
	return (name & NAME) | ((word + VERSION) & VERSIONS) | state;
}

static bool change(struct hot_slot *s, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(&s->word, &from, to);
}

void zns_hot_keep(struct zns_hot *h, uint32_t zone, uint64_t until_ns)
{
	if (zone < h->shape.nr_zones)
		atomic_store(&h->head->zone[zone].until_ns, until_ns);
}

void zns_hot_forget_zone(struct zns_hot *h, uint32_t zone)
{
	if (zone < h->shape.nr_zones)
		atomic_fetch_add(&h->head->zone[zone].generation, 1);
}

void zns_hot_forget_owner(struct zns_hot *h, uint32_t owner)
{
	for (uint32_t n = 0; n < h->shape.nr_slots; n++) {
		struct hot_slot *s = &h->slot[n];
		uint64_t word = atomic_load(&s->word);

		if (state_of(word) == FILLING && atomic_load(&s->owner) == owner &&
		    change(s, word, next_word(word, 0, EMPTY)))
			wake(s);
	}
}

bool zns_hot_wanted(const struct zns_hot *h, uint32_t zone)
{
	uint64_t until;

	if (zone >= h->shape.nr_zones || atomic_load(&h->trouble) >= LATE_MAX)
		return false;
	until = atomic_load_explicit(&h->head->zone[zone].until_ns, memory_order_relaxed);
	return until == UINT64_MAX || (until && until > zns_mono_ns());
}

static uint64_t name_of(const struct zns_hot *h, const struct zns_hot_unit *u)
{
	const uint64_t key[] = { u->zone, u->len, u->off, u->sum,
				 atomic_load(&h->head->zone[u->zone].generation) };

	return zns_hash(key, sizeof(key));
}

static off_t bytes_at(const struct zns_hot *h, uint32_t slot)
{
	return (off_t)(h->head_bytes + (uint64_t)slot * h->shape.slot_bytes);
}

/* Returns the slot that has the unit, or UINT32_MAX if there is none; then *victim is a slot that
 * can be used for the unit, or UINT32_MAX if none is free. */
static uint32_t look_up(const struct zns_hot *h, uint64_t name, uint64_t now, uint64_t *word,
			uint32_t *victim)
{
	uint32_t first = (uint32_t)(name % (h->shape.nr_slots / WAYS)) * WAYS;
	uint64_t oldest = UINT64_MAX;

	*victim = UINT32_MAX;
	for (uint32_t n = first; n < first + WAYS; n++) {
		uint64_t w = atomic_load(&h->slot[n].word);
		uint64_t used = atomic_load_explicit(&h->slot[n].used_ns, memory_order_relaxed);

		if (state_of(w) != EMPTY && !((w ^ name) & NAME)) {
			*word = w;
			return n;
		}
		if (state_of(w) == EMPTY)
			used = 0;
		else if (state_of(w) != READY && used + WAIT_NS > now)
			continue;
		if (used >= oldest)
			continue;
		oldest = used;
		*victim = n;
		*word = w;
	}
	return UINT32_MAX;
}

static void wait_for(struct hot_slot *s, uint64_t word, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000u),
			       .tv_nsec = (long)(ns % 1000000000u) };
	uint32_t wakes = atomic_load(&s->wakes);

	if (atomic_load(&s->word) == word)
		syscall(SYS_futex, &s->wakes, FUTEX_WAIT, wakes, &ts, NULL, 0);
}

static bool take(struct zns_hot *h, uint32_t n, uint64_t word, uint64_t name, uint64_t now,
		 struct zns_hot_place *at)
{
	struct hot_slot *s = &h->slot[n];

	*at = (struct zns_hot_place){ n, next_word(word, name, FILLING) };
	atomic_store_explicit(&s->used_ns, now, memory_order_relaxed);
	if (!change(s, word, at->word))
		return false;
	atomic_store(&s->owner, h->owner);
	return true;
}

/* Copies the bytes of a slot that is ready. False: the slot was reused meanwhile. */
static bool copy_out(struct zns_hot *h, const struct zns_hot_unit *u, uint32_t n, uint64_t word,
		     uint64_t now, void *buf)
{
	struct hot_slot *s = &h->slot[n];

	atomic_store_explicit(&s->used_ns, now, memory_order_relaxed);
	return !zns_pread_all(h->fd, buf, u->len, bytes_at(h, n)) && atomic_load(&s->word) == word;
}

enum zns_hot_got zns_hot_get(struct zns_hot *h, const struct zns_hot_unit *u, void *buf, bool fill,
			     struct zns_hot_place *at)
{
	uint64_t begin = zns_mono_ns(), now = begin, name, word = 0;
	uint32_t n, victim;

	if (u->len > h->shape.slot_bytes || u->zone >= h->shape.nr_zones)
		return ZNS_HOT_NONE;
	name = name_of(h, u);
	for (int tries = 0; tries < TRIES; tries++, now = zns_mono_ns()) {
		n = look_up(h, name, now, &word, &victim);
		if (n == UINT32_MAX) {
			if (!fill || victim == UINT32_MAX)
				return ZNS_HOT_NONE;
			if (take(h, victim, word, name, now, at))
				return ZNS_HOT_FILL;
		} else if (state_of(word) == READY) {
			*at = (struct zns_hot_place){ n, word };
			if (!copy_out(h, u, n, word, now, buf))
				continue;
			atomic_fetch_add_explicit(&h->head->had, 1, memory_order_relaxed);
			return ZNS_HOT_HAVE;
		} else if (now - begin < WAIT_NS) {
			wait_for(&h->slot[n], word, WAIT_NS - (now - begin));
		} else {
			atomic_fetch_add(&h->head->late, 1);
			atomic_fetch_add(&h->trouble, 1);
			return fill && take(h, n, word, name, now, at) ? ZNS_HOT_FILL :
									 ZNS_HOT_NONE;
		}
	}
	return ZNS_HOT_NONE;
}

void zns_hot_put(struct zns_hot *h, const struct zns_hot_unit *u, const struct zns_hot_place *at,
		 const void *buf)
{
	struct hot_slot *s = &h->slot[at->slot];
	bool ready = buf && atomic_load(&s->word) == at->word &&
		     !zns_pwrite_all(h->fd, buf, u->len, bytes_at(h, at->slot));
	uint64_t next = next_word(at->word, ready ? at->word : 0, ready ? READY : EMPTY);

	if (!change(s, at->word, next))
		return; /* another process took the slot meanwhile */
	if (ready)
		atomic_fetch_add_explicit(&h->head->filled, 1, memory_order_relaxed);
	wake(s);
}

void zns_hot_wrong(struct zns_hot *h, const struct zns_hot_place *at)
{
	atomic_fetch_add(&h->head->wrong, 1);
	atomic_fetch_add(&h->trouble, 1);
	change(&h->slot[at->slot], at->word, next_word(at->word, 0, EMPTY));
}

void zns_hot_figures(const struct zns_hot *h, struct zns_hot_figures *out)
{
	struct stat st = { .st_blocks = 0 };

	fstat(h->fd, &st);
	*out = (struct zns_hot_figures){ .limit = (uint64_t)h->shape.nr_slots * h->shape.slot_bytes,
					 .used = (uint64_t)st.st_blocks * 512,
					 .filled = atomic_load(&h->head->filled),
					 .had = atomic_load(&h->head->had),
					 .wrong = atomic_load(&h->head->wrong),
					 .late = atomic_load(&h->head->late) };
}
