/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hands the context to the keeper, and takes it over from the keeper. The descriptors are, in this
 * order: those of the store; if the memory is encrypted, its key; if the context was restored, the
 * table of its checkpoint; those of the context. The data begin with a byte that says whether there
 * are a key and a table. The device is found by the UUID in the store's lock file.
 */
#include <errno.h>
#include <string.h>

#include "pager.h"
#include "zns/context.h"

_Static_assert(ZNS_PAGES_FDS == 1, "the store's descriptor comes first, alone");

static int put(void *arg, const void *const units[], uint32_t n, struct zns_pages_ref *refs,
	       struct zns_err *err)
{
	const struct pager *p = arg;

	return zns_pages_put(p->pages, units, n, refs, err);
}

#define HAS_ORIGIN 1
#define HAS_KEY 2

static int get(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	const struct pager *p = arg;

	return zns_origin_has(ref.place) ? zns_origin_get(p->origin, ref.place, buf, err) :
					   zns_pages_get(p->pages, ref, buf, err);
}

static int piece(void *arg, const struct zns_pages_ref *ref, uint32_t nr, void *buf,
		 struct zns_err *err)
{
	const struct pager *p = arg;

	return zns_origin_has(ref->place) ? -EOPNOTSUPP :
					    zns_pages_get_piece(p->pages, ref, nr, buf, err);
}

static int hold(void *arg, struct zns_pages_ref ref)
{
	const struct pager *p = arg;

	return zns_origin_has(ref.place) ? zns_origin_hold(p->origin, ref.place) :
					   zns_pages_hold(p->pages, ref);
}

static int drop(void *arg, struct zns_pages_ref ref)
{
	const struct pager *p = arg;

	return zns_origin_has(ref.place) ? zns_origin_drop(p->origin, ref.place) :
					   zns_pages_drop(p->pages, ref);
}

/* Units in the checkpoint are never moved, so they cannot be among these. */
static int put_as_is(void *arg, const void *const units[], uint32_t n, struct zns_pages_ref *refs,
		     struct zns_err *err)
{
	const struct pager *p = arg;

	return zns_pages_put_as_is(p->pages, units, n, refs, err);
}

static int get_as_is(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	const struct pager *p = arg;

	return zns_pages_get_as_is(p->pages, ref, buf, err);
}

static bool dead(void *arg, uint64_t *first, uint64_t *last)
{
	const struct pager *p = arg;

	return zns_pages_dead(p->pages, first, last);
}

void store_of(struct pager *p, struct zns_mem_store *st)
{
	*st = (struct zns_mem_store){ put, get, piece, hold, drop, put_as_is, get_as_is, dead, p };
}

int hand_over(struct pager *p, struct zns_err *err)
{
	uint8_t meta[1 + ZNS_MEM_META_MAX];
	struct zns_mem_fds f;
	int fds[3 + ZNS_MEM_FDS_MAX];
	uint32_t first = 1;
	int ret = zns_pages_fds(p->pages, fds), key = zns_pages_key_fd(p->pages);

	if (ret != 1)
		return zns_fail_sys(err, ret < 0 ? ret : -EPROTO,
				    "the page store has nothing to hand over");
	if (key >= 0)
		fds[first++] = key;
	if (p->origin)
		fds[first++] = zns_origin_fd(p->origin);
	zns_mem_fds(p->m, &f);
	memcpy(fds + first, f.fd, f.nr * sizeof(*fds));
	memcpy(meta + 1, f.meta, f.len);
	*meta = (uint8_t)((p->origin ? HAS_ORIGIN : 0) | (key >= 0 ? HAS_KEY : 0));
	ret = zns_memkeep_hand(p->keep, meta, 1 + f.len, fds, first + f.nr, err);
	if (ret)
		return ret;
	zns_mem_kept(p->m, &f);
	zns_mem_keeper(p->m, zns_memkeep_pid(p->keep));
	return 0;
}

static int open_store(struct pager *p, int fd, const int *key_fd, struct zns_err *err)
{
	char uuid[ZNS_UUID_STR];
	struct zns_context c;
	struct zns_pages_params params = {
		.container = c.container, .fds = &fd, .nr_fds = 1, .key_fd = key_fd
	};
	int ret = zns_context_read(fd, 0, &c, err);

	if (ret)
		return ret;
	params.dev = zns_uuid_format(c.device, uuid);
	return zns_pages_open(&params, &p->pages, err);
}

/* Returns the number of descriptors before those of the context. */
static uint32_t before(uint8_t meta)
{
	return 1u + !!(meta & HAS_KEY) + !!(meta & HAS_ORIGIN);
}

/* Checks a set, since the pager that handed it over may be of another build. */
static bool sound(const struct zns_memkeep_set *set)
{
	const uint8_t *meta = set->data;

	return set->len && set->len <= 1 + ZNS_MEM_META_MAX && *meta <= (HAS_ORIGIN | HAS_KEY) &&
	       set->nr > before(*meta) && set->nr <= before(*meta) + ZNS_MEM_FDS_MAX;
}

static int take(struct pager *p, struct zns_memkeep_set *set, struct zns_err *err)
{
	const uint8_t *meta = set->data;
	uint32_t first = before(*meta);
	struct zns_mem_fds f = { .nr = set->nr - first, .len = (uint32_t)set->len - 1 };
	struct zns_mem_store st;
	int ret;

	memcpy(f.fd, set->fds + first, f.nr * sizeof(*f.fd));
	memcpy(f.meta, meta + 1, f.len);
	for (uint32_t i = first; i < set->nr; i++)
		set->fds[i] = -1;
	store_of(p, &st);
	ret = zns_mem_take(&f, &st, &p->m, err);
	if (ret)
		return ret;
	zns_mem_keeper(p->m, zns_memkeep_pid(p->keep));
	ret = open_store(p, set->fds[0], *meta & HAS_KEY ? &set->fds[1] : NULL, err);
	if (!ret && *meta & HAS_ORIGIN)
		ret = zns_origin_take(set->fds[first - 1], &p->origin, err);
	return ret ? ret : zns_mem_go_on(p->m, err);
}

int hand_take(struct pager *p, struct zns_err *err)
{
	struct zns_memkeep_set set = { .nr = 0 };
	int ret = zns_memkeep_take(ZNS_MEMKEEP_FD, &p->keep, &set, err);

	if (ret)
		return ret;
	snprintf(p->name, sizeof(p->name), "%.*s", ZNS_NAME_MAX, set.name);
	ret = sound(&set) ? take(p, &set, err) :
			    zns_fail(err, -EPROTO, "the keeper has something else than a context");
	zns_memkeep_set_free(&set);
	if (!ret) {
		zns_pages_rate(p->pages, zns_mem_rate(p->m));
		zns_pages_recounted(p->pages);
	}
	return ret;
}

void origin_over(struct pager *p)
{
	int fd;

	if (!p->origin || zns_origin_left(p->origin) || zns_pages_fds(p->pages, &fd) != 1)
		return;
	/*
	 * A read that is still running gets -ENOENT. The origin is freed when this process exits.
	 */
	if (!zns_context_set_origin(fd, NULL))
		zns_origin_end(p->origin);
}
