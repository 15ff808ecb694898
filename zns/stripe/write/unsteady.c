/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of a frozen task that changes nevertheless. The kernel writes the number of the processor
 * into a thread's rseq area (rseq(2)) whenever the thread runs, and CRIU's parasite code runs in
 * that thread. If a unit were read again from the task, its checksum would be wrong. So the
 * contents of such areas are kept as they were at the first read.
 */
#include <string.h>
#include "writer.h"

/* most areas (1.1 MB). The area of a further thread is not kept: its unit may fail its checksum if
 * it is read again */
#define MAX_AREAS 16384
/* most bytes of an area: today it has 32, and the kernel only reads the fields at its end */
#define MAX_LEN 48

struct area {
	pid_t pid;
	uint32_t len;
	uintptr_t at;
	bool known;
	uint8_t was[MAX_LEN];
};

int zns_writer_unsteady(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr)
{
	struct unsteady *u = &w->unsteady;
	int ret = 0;

	writer_lock(w);
	for (uint32_t i = 0; i < nr && u->nr < MAX_AREAS; i++) {
		ret = zns_grow(u->v, u->nr, u->max);
		if (ret)
			break;
		u->v[u->nr++] =
			(struct area){ .pid = pid,
				       .at = (uintptr_t)iov[i].iov_base,
				       .len = (uint32_t)zns_min(iov[i].iov_len, (size_t)MAX_LEN) };
	}
	writer_unlock(w);
	return ret;
}

bool zns_writer_is_unsteady(struct zns_writer *w, pid_t pid, uintptr_t at, size_t len)
{
	bool is = false;

	writer_lock(w);
	for (uint32_t i = 0; i < w->unsteady.nr && !is; i++) {
		const struct area *a = &w->unsteady.v[i];

		is = a->pid == pid && a->at < at + len && at < a->at + a->len;
	}
	writer_unlock(w);
	return is;
}

/* Returns where area @a is in the unit's bytes. NULL: it is not in the unit, or only in part. */
static uint8_t *find(const struct area *a, const struct iovec *iov, uint32_t nr, uint8_t *buf)
{
	for (uint32_t i = 0; i < nr; buf += iov[i++].iov_len) {
		uintptr_t base = (uintptr_t)iov[i].iov_base;

		if (a->at >= base && a->at - base <= iov[i].iov_len &&
		    a->len <= iov[i].iov_len - (a->at - base))
			return buf + (a->at - base);
	}
	return NULL;
}

/* The range of addresses of a unit's memory. Most units contain no area, and a comparison with this
 * range avoids the search. */
struct span {
	uintptr_t from, to;
};

static struct span span_of(const struct iovec *iov, uint32_t nr)
{
	struct span s = { UINTPTR_MAX, 0 };

	for (uint32_t i = 0; i < nr; i++) {
		uintptr_t base = (uintptr_t)iov[i].iov_base;

		s.from = zns_min(s.from, base);
		s.to = zns_max(s.to, base + iov[i].iov_len);
	}
	return s;
}

static bool may_have(const struct span *s, pid_t pid, const struct area *a)
{
	return a->pid == pid && a->at >= s->from && a->at < s->to;
}

void unsteady_note(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		   uint8_t *buf)
{
	const struct span s = span_of(iov, nr);

	for (uint32_t i = 0; i < w->unsteady.nr; i++) {
		struct area *a = &w->unsteady.v[i];
		const uint8_t *at = may_have(&s, pid, a) ? find(a, iov, nr, buf) : NULL;

		if (!at)
			continue;
		memcpy(a->was, at, a->len);
		a->known = true;
	}
}

void unsteady_put_back(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr,
		       uint8_t *buf)
{
	const struct span s = span_of(iov, nr);

	writer_lock(w);
	for (uint32_t i = 0; i < w->unsteady.nr; i++) {
		const struct area *a = &w->unsteady.v[i];
		uint8_t *at = a->known && may_have(&s, pid, a) ? find(a, iov, nr, buf) : NULL;

		if (at)
			memcpy(at, a->was, a->len);
	}
	writer_unlock(w);
}
