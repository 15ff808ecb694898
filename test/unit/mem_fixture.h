/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEM_FIXTURE_H
#define MEM_FIXTURE_H
/* For test_mem*.c: a store in memory, programs whose every page has a known content, and a
 * pager. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../controls/mem/control.h"
#include "zns/crypt_memory.h"
#include "zns/mem.h"
#include "zns/util.h"

#ifndef PAGE
#define PAGE 4096UL
#endif

/* ---- a store that outlives a pager; with ZNS_TEST_MEM_ENCRYPT it encrypts ---- */

#define SLOTS 8192U /* units */

struct shelf {
	_Atomic uint32_t count[SLOTS];
	uint64_t hash[SLOTS];
	_Atomic uint32_t next;
	_Atomic uint64_t put, got, held;
	_Atomic int put_error, get_error;
	/* for each unit that cannot be read: 1 + the index of its bad piece; 0: it can be read */
	_Atomic uint32_t bad_piece;
	_Atomic uint32_t put_us, get_us; /* how long a put takes, and a get */
	_Atomic uint32_t clean; /* slots that are to be emptied, one range after the other */
	_Atomic uint32_t cleaned; /* ranges so far */
};

struct shelves {
	struct shelf *s;
	uint8_t *data;
	/* for encryption: a key made by the test; every pager uses it */
	struct zns_memory_key *made, *key;
	pid_t key_pid;
	pthread_mutex_t key_lock;
};

static const uint8_t shelf_context[ZNS_UUID_LEN] = "context-of-tests";

/* NULL: not encrypted */
static inline struct zns_memory_key *shelf_key(struct shelves *h)
{
	if (!h->made)
		return NULL;
	pthread_mutex_lock(&h->key_lock);
	if (h->key_pid != getpid() &&
	    zns_memory_key_take(zns_memory_key_fd(h->made), shelf_context, &h->key, NULL))
		abort();
	h->key_pid = getpid();
	pthread_mutex_unlock(&h->key_lock);
	return h->key;
}

static inline void *common(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static inline int shelf_store(struct shelves *h, const void *const units[], uint32_t n, bool as_is,
			      struct zns_pages_ref *refs, struct zns_err *err)
{
	struct zns_memory_key *key = shelf_key(h);

	if (h->s->put_us)
		usleep(h->s->put_us);
	if (h->s->put_error)
		return zns_fail(err, h->s->put_error, "the test says so");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t zero, tries = 0, slot;

		do {
			slot = h->s->next++ % SLOTS;
			zero = 0;
			if (tries++ > 2 * SLOTS)
				return zns_fail(err, -ENOSPC, "no slot");
		} while (!atomic_compare_exchange_strong(&h->s->count[slot], &zero, 1));
		uint8_t *at = h->data + slot * (size_t)ZNS_PAGES_UNIT;

		memcpy(at, units[i], ZNS_PAGES_UNIT);
		refs[i] = (struct zns_pages_ref){ .place = slot + 1 };
		if (key && !as_is &&
		    zns_memory_seal(key, refs[i].nonce, at, ZNS_PAGES_UNIT, refs[i].tag, err))
			return -EIO;
		refs[i].hash = h->s->hash[slot] = zns_hash(at, ZNS_PAGES_UNIT);
		for (uint32_t k = 0; !key && k < ZNS_PAGES_PIECES; k++)
			refs[i].piece[k] = (uint32_t)zns_hash(
				(const uint8_t *)units[i] + k * ZNS_PAGES_PIECE, ZNS_PAGES_PIECE);
		h->s->put++;
		h->s->held++;
	}
	return 0;
}

static inline int shelf_put(void *arg, const void *const units[], uint32_t n,
			    struct zns_pages_ref *refs, struct zns_err *err)
{
	return shelf_store(arg, units, n, false, refs, err);
}

static inline int shelf_put_as_is(void *arg, const void *const units[], uint32_t n,
				  struct zns_pages_ref *refs, struct zns_err *err)
{
	return shelf_store(arg, units, n, true, refs, err);
}

static inline int shelf_get_as_is(void *arg, struct zns_pages_ref ref, void *buf,
				  struct zns_err *err)
{
	struct shelves *h = arg;

	if (h->s->get_us)
		usleep(h->s->get_us);
	if (h->s->get_error)
		return zns_fail(err, h->s->get_error, "the test says so");
	if (h->s->bad_piece)
		return zns_fail(err, -EIO, "a piece of it cannot be read");
	memcpy(buf, h->data + (ref.place - 1) * (size_t)ZNS_PAGES_UNIT, ZNS_PAGES_UNIT);
	h->s->got++;
	return zns_hash(buf, ZNS_PAGES_UNIT) == ref.hash ? 0 :
							   zns_fail(err, -EBADMSG, "other bytes");
}

static inline int shelf_get(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	struct zns_memory_key *key = shelf_key(arg);
	int ret = shelf_get_as_is(arg, ref, buf, err);

	return ret || !key ? ret :
			     zns_memory_open(key, ref.nonce, buf, ZNS_PAGES_UNIT, ref.tag, err);
}

static inline int shelf_piece(void *arg, const struct zns_pages_ref *ref, uint32_t nr, void *buf,
			      struct zns_err *err)
{
	struct shelves *h = arg;

	if (h->made)
		return -EOPNOTSUPP;
	if (h->s->get_error)
		return zns_fail(err, h->s->get_error, "the test says so");
	if (h->s->bad_piece == nr + 1)
		return zns_fail(err, -EIO, "this one cannot be read");
	memcpy(buf,
	       h->data + (ref->place - 1) * (size_t)ZNS_PAGES_UNIT + nr * (size_t)ZNS_PAGES_PIECE,
	       ZNS_PAGES_PIECE);
	return (uint32_t)zns_hash(buf, ZNS_PAGES_PIECE) == ref->piece[nr] ?
		       0 :
		       zns_fail(err, -EBADMSG, "other bytes");
}

static inline int shelf_hold(void *arg, struct zns_pages_ref ref)
{
	struct shelves *h = arg;

	h->s->count[ref.place - 1]++;
	h->s->held++;
	return 0;
}

static inline int shelf_drop(void *arg, struct zns_pages_ref ref)
{
	struct shelves *h = arg;

	if (!h->s->count[ref.place - 1])
		abort(); /* dropped twice */
	h->s->count[ref.place - 1]--;
	h->s->held--;
	return 0;
}

static inline bool shelf_dead(void *arg, uint64_t *first, uint64_t *last)
{
	struct shelves *h = arg;

	if (!h->s->clean)
		return false;
	*first = h->s->cleaned++ * h->s->clean % SLOTS + 1;
	*last = *first + h->s->clean - 1;
	return true;
}

static inline void shelf_open(struct shelves *h, struct zns_mem_store *st)
{
	h->s = common(sizeof(*h->s));
	h->data = common(SLOTS * (size_t)ZNS_PAGES_UNIT);
	h->made = h->key = NULL;
	h->key_pid = 0;
	pthread_mutex_init(&h->key_lock, NULL);
	if (getenv("ZNS_TEST_MEM_ENCRYPT"))
		assert_int_equal(zns_memory_key_new(shelf_context, &h->made, NULL), 0);
	*st = (struct zns_mem_store){ .put = shelf_put,
				      .get = shelf_get,
				      .piece = shelf_piece,
				      .hold = shelf_hold,
				      .drop = shelf_drop,
				      .put_as_is = shelf_put_as_is,
				      .get_as_is = shelf_get_as_is,
				      .dead = shelf_dead,
				      .arg = h };
}

static inline void shelf_close(struct shelves *h)
{
	if (h->key_pid == getpid())
		zns_memory_key_free(h->key);
	zns_memory_key_free(h->made);
	munmap(h->s, sizeof(*h->s));
	munmap(h->data, SLOTS * (size_t)ZNS_PAGES_UNIT);
}

/* ---- a program ---- */

#define PAGES 2048U /* pages of the memory with known content: 8 MiB */

/* What a program reports, and what it is told. Shared memory, so it is never evicted. */
/* A page that did not have what was written to it. */
struct wrong {
	uint32_t nr, seq;
	uint64_t found; /* its first word */
	uint64_t round;
};

struct report {
	_Atomic uint32_t seq[4][PAGES]; /* the last value that each thread wrote; 0: zeroes */
	_Atomic uint64_t rounds, wrong, writes, forks, moves, removals, execs;
	_Atomic uint32_t ready, go, stop, done, children;
	bool forking; /* child processes check all pages, too */
	uint32_t killed; /* of these */
	struct wrong first; /* the first wrong page */
};

static inline void page_write(uint64_t *page, uint32_t nr, uint32_t seq)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		page[i] = seq ? (uint64_t)nr << 40 | (uint64_t)seq << 8 | (i & 0xff) : 0;
}

static inline bool page_is(const uint64_t *page, uint32_t nr, uint32_t seq)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		if (page[i] != (seq ? (uint64_t)nr << 40 | (uint64_t)seq << 8 | (i & 0xff) : 0))
			return false;
	return true;
}

static inline uint32_t roll(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(*seed >> 33);
}

/* ---- statistics of a pager ---- */

static inline void status(struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	assert_int_equal(zns_mem_status(m, st), 0);
}

static inline uint64_t evicted_units(struct zns_mem *m)
{
	ZnsPb__MemoryStatus st;
	uint64_t n;

	status(m, &st);
	n = st.evicted_units;
	zns_mem_status_free(&st);
	return n;
}

#endif
