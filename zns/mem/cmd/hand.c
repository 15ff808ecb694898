/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * To the keeper and back: the store's descriptor, then those of the context; beside them what the
 * context says of its own. The device is found by the UUID in the store's lock file.
 */
#include <errno.h>
#include <string.h>

#include "pager.h"
#include "zns/context.h"

_Static_assert(ZNS_PAGES_FDS == 1, "the store's descriptor comes first, alone");

static int put(void *arg, const void *const units[], uint32_t n, struct zns_pages_ref *refs,
	       struct zns_err *err)
{
	return zns_pages_put(arg, units, n, refs, err);
}

static int get(void *arg, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	return zns_pages_get(arg, ref, buf, err);
}

static int hold(void *arg, struct zns_pages_ref ref)
{
	return zns_pages_hold(arg, ref);
}

static int drop(void *arg, struct zns_pages_ref ref)
{
	return zns_pages_drop(arg, ref);
}

void store_of(struct zns_pages *ps, struct zns_mem_store *st)
{
	*st = (struct zns_mem_store){ put, get, hold, drop, ps };
}

int hand_over(struct pager *p, struct zns_err *err)
{
	struct zns_mem_fds f;
	int fds[1 + ZNS_MEM_FDS_MAX];
	int ret = zns_pages_fds(p->pages, fds);

	if (ret != 1)
		return zns_fail_sys(err, ret < 0 ? ret : -EPROTO,
				    "the page store has nothing to hand over");
	zns_mem_fds(p->m, &f);
	memcpy(fds + 1, f.fd, f.nr * sizeof(*fds));
	return zns_memkeep_hand(p->keep, f.meta, f.len, fds, 1 + f.nr, err);
}

static int open_store(struct pager *p, int fd, struct zns_err *err)
{
	char uuid[ZNS_UUID_STR];
	struct zns_context c;
	struct zns_pages_params params = { .container = c.container, .fds = &fd, .nr_fds = 1 };
	int ret = zns_context_read(fd, 0, &c, err);

	if (ret)
		return ret;
	params.dev = zns_uuid_format(c.device, uuid);
	return zns_pages_open(&params, &p->pages, err);
}

int hand_take(struct pager *p, struct zns_err *err)
{
	struct zns_memkeep_set set = { .nr = 0 };
	struct zns_mem_fds f = { .nr = 0 };
	struct zns_mem_store st;
	int ret = zns_memkeep_take(ZNS_MEMKEEP_FD, &p->keep, &set, err);

	if (ret)
		return ret;
	snprintf(p->name, sizeof(p->name), "%.*s", ZNS_NAME_MAX, set.name);
	if (set.nr < 2 || set.nr > 1 + ZNS_MEM_FDS_MAX || set.len > ZNS_MEM_META_MAX) {
		zns_memkeep_set_free(&set);
		return zns_fail(err, -EPROTO, "the keeper has something else than a context");
	}
	ret = open_store(p, set.fds[0], err);
	if (!ret) {
		f.nr = set.nr - 1;
		f.len = (uint32_t)set.len;
		memcpy(f.fd, set.fds + 1, f.nr * sizeof(*f.fd));
		memcpy(f.meta, set.data, set.len);
		for (uint32_t i = 1; i < set.nr; i++)
			set.fds[i] = -1;
		store_of(p->pages, &st);
		ret = zns_mem_take(&f, &st, &p->m, err);
	}
	zns_memkeep_set_free(&set);
	if (!ret)
		zns_pages_recounted(p->pages);
	return ret;
}
