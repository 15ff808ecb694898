/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The sender of a dump to a page server (Documentation/inside/migration.md, "In rounds"). The
 * trackers stay on this machine, with a keeper. The pages go to criu, which sends them. There is no
 * device and no broker.
 *
 * A pre-dump protects the written pages before the freeze and again during it, and reads them after
 * the thaw: the freeze serves as the barrier. A dump reads the pages during the freeze.
 */
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include "../live/live.h"
#include "zns-memfd.h"
#include "zns/grow.h"
#include "zns/process.h"

_Static_assert(ZW_ID == ZNS_UUID_LEN, "ids are UUIDs");

struct send {
	struct live l;
	bool late; /* the pages are read after the thaw, while the tasks run (pre-dump) */
	struct zw_chunk *chunk; /* array of ZW_CHUNKS chunks, shared with criu */
	/* the task that is being sent, and its runs of pages that are not sent yet */
	pid_t pid;
	struct zw_run *run;
	size_t nr, max, at;
};

static bool is_zero(const uint8_t id[ZW_ID])
{
	static const uint8_t none[ZW_ID];

	return !memcmp(id, none, ZW_ID);
}

/* ---- before the freeze ---- */

/*
 * The last capability of the list is to suspend a container's seccomp filter, the last but one is
 * for the keeper.
 */
static int drop_rights(struct zns_err *err)
{
	static const int keep[] = { CAP_SYS_PTRACE, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_RESOURCE,
				    CAP_SYS_ADMIN };

	return zns_process_keep_caps(keep, ZNS_ARRAY_SIZE(keep), err);
}

/*
 * Protects written pages before the freeze, so that few are left to protect during it. Reads
 * nothing yet, since the task may write until the freeze.
 */
static int protect(struct live_task *t, struct zns_err *err)
{
	struct zns_spans copy = { 0 };
	int ret = t->track ? live_protect(t, &copy, err) : 0;

	for (size_t n = 0; n < copy.nr && !ret; n++) {
		struct place one = { copy.s[n].start, copy.s[n].end - copy.s[n].start,
				     copy.s[n].start, 0 };

		if (places_append(&t->places, one))
			ret = zns_fail(err, -ENOMEM, "no memory for lists of pages");
	}
	zns_spans_free(&copy);
	return ret;
}

static int prepare(struct send *s, uint32_t how, struct zns_err *err)
{
	struct live *l = &s->l;
	int ret;

	live_keep_begin(l, how & ZW_ROUNDS_KEEP);
	ret = live_look(l, err);
	for (size_t n = 0; n < l->nr_tasks && how & ZW_ROUNDS_SMAPS && !ret; n++)
		live_maps_before(&l->task[n]);
	if (s->late && !ret)
		live_keep_changed(l);
	for (size_t n = 0; n < l->nr_tasks && s->late && !ret; n++)
		ret = protect(&l->task[n], err);
	return ret;
}

static int share_chunks(struct send *s, int *out, struct zns_err *err)
{
	cleanup_close int fd = zns_memfd("zns-pages");
	size_t len = ZW_CHUNKS * sizeof(*s->chunk);
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)len))
		return zns_fail_sys(err, -errno, "no memory for pages on their way");
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		return zns_fail_sys(err, -errno, "no memory for pages on their way");
	s->chunk = p;
	*out = zns_take_fd(&fd);
	return 0;
}

static void summary(const struct live *l, struct zw_reply *r)
{
	uint32_t tracked = 0, kept = 0;
	const char *why = "the page server has no parent";
	char parent[224];

	for (size_t n = 0; n < l->nr_tasks; n++) {
		tracked += l->task[n].track != NULL;
		kept += l->task[n].kept && l->task[n].track;
	}
	if (l->keep.has_parent)
		why = l->keep.why[0] ? l->keep.why : "these are new";
	if (kept)
		snprintf(parent, sizeof(parent), "%u since the parent", kept);
	else
		snprintf(parent, sizeof(parent), "all are sent in full (%s)", why);
	snprintf(r->msg, sizeof(r->msg), "send: %u of %zu tasks tracked (%s), %s", tracked,
		 l->nr_tasks, zns_tracker_name(l->kernel.tracker), parent);
	r->kind = ZW_KIND_PAGES;
}

static struct send *new_send(const struct packet *p, struct zns_err *err)
{
	const struct zw_send *b = (const struct zw_send *)p->payload;
	struct send *s = calloc(1, sizeof(*s));

	if (!s) {
		zns_fail(err, -ENOMEM, "no memory for the dump");
		return NULL;
	}
	s->late = p->h.nr & ZW_ROUNDS_COPY;
	s->l.root = p->h.pid;
	s->l.track = true;
	s->l.keep.parent = s->l.keep.next = -1;
	s->l.keep.has_parent = !is_zero(b->parent);
	memcpy(s->l.keep.of, b->parent, ZNS_UUID_LEN);
	memcpy(s->l.keep.id, b->id, ZNS_UUID_LEN);
	return s;
}

int send_begin(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	struct zns_err e = ZNS_ERR_INIT;
	cleanup_close int fd = -1;
	struct send *s;
	int ret;

	if (p->len != sizeof(struct zw_send) || p->h.pid <= 0 || p->nr_fd != 1)
		return zns_fail(err, -EPROTO, "zns-helper and criu are of different builds");
	s = new_send(p, err);
	if (!s)
		return err->code;
	if (zns_track_kernel(&s->l.kernel, &e) || s->l.kernel.tracker != ZNS_TRACKER_UFFD) {
		snprintf(r.msg, sizeof(r.msg), "%s", e.code ? e.msg : s->l.kernel.why);
		reply_send(p->fd[0], &r, -1);
		free(s);
		return 0;
	}
	h->send = s; /* from here on send_end() frees it */
	ret = drop_rights(err);
	if (!ret)
		ret = share_chunks(s, &fd, err);
	if (!ret)
		ret = prepare(s, p->h.nr, err);
	if (ret)
		return ret;
	summary(&s->l, &r);
	reply_send(p->fd[0], &r, fd);
	return 0;
}

/* ---- the freeze ---- */

/*
 * Lists the pages to send: those that were written and, in a pre-dump, also those that protect()
 * has protected before the freeze.
 */
static int list_pages(struct send *s, struct live_task *t, const struct live_areas *a,
		      struct zns_spans *guards, struct zns_err *err)
{
	int ret = live_rest(&s->l, t, a, &t->send, guards, err), full = 0;
	struct zns_spans before = { 0 };

	for (size_t n = 0; n < t->places.nr && !full; n++)
		full = zns_spans_add(&before, t->places.p[n].vaddr,
				     t->places.p[n].vaddr + t->places.p[n].len);
	if (full || zns_spans_join(&t->send, &before))
		ret = zns_fail(err, -ENOMEM, "no memory for lists of pages");
	zns_spans_free(&before);
	places_free(&t->places);
	return ret;
}

static int task_final(struct send *s, struct packet *p, struct zns_err *err)
{
	struct live_task *t = live_find(&s->l, p->h.pid);
	struct zw_reply r = { .kind = ZW_KIND_NONE };
	const char *name = packet_text(p);
	struct zns_spans guards = { 0 };
	struct live_areas a = { 0 };
	cleanup_close int fd = -1;
	int ret;

	if (!name || strlen(name) >= ZW_NAME || (t && t->pagemap[0]))
		return zns_fail(err, -EPROTO, "criu sent an impossible task");
	if (!live_is_tracked(&s->l, t, name)) {
		snprintf(r.msg, sizeof(r.msg), "send: task %d is sent in full: %s", p->h.pid,
			 t ? t->why.msg : "it is new");
		reply_send(p->fd[0], &r, -1);
		return 0;
	}
	ret = live_areas(p, &a, err);
	if (!ret)
		ret = list_pages(s, t, &a, &guards, err);
	fd = ret ? -1 : live_guards_fd(&s->l, &guards);
	zns_spans_free(&guards);
	if (ret) {
		live_areas_free(&a);
		return ret;
	}
	zns_spans_free(&a.whole);
	zns_spans_free(&a.lazy);
	t->areas = a.all;
	snprintf(t->pagemap, sizeof(t->pagemap), "%s", name);
	r.kind = ZW_KIND_PAGES;
	r.size = zns_spans_bytes(&t->send);
	snprintf(r.msg, sizeof(r.msg), "send: task %d has %llu pages, and %llu in the parent",
		 t->pid, (unsigned long long)r.size / (unsigned)getpagesize(),
		 (unsigned long long)zns_spans_bytes(&t->parent) / (unsigned)getpagesize());
	reply_send(p->fd[0], &r, fd);
	return 0;
}

/* ---- pages ---- */

static int add_run(struct send *s, const struct zns_span *one, bool parent)
{
	if (zns_grow(s->run, s->nr, s->max))
		return -ENOMEM;
	s->run[s->nr++] = (struct zw_run){ one->start, one->end - one->start, parent };
	return 0;
}

/* The two lists are sorted by address and do not overlap. */
static int begin_task(struct send *s, const struct live_task *t, struct zns_err *err)
{
	const struct zns_spans *a = &t->send, *b = &t->parent;
	int ret = 0;

	s->pid = t->pid;
	s->nr = s->at = 0;
	for (size_t n = 0, m = 0; (n < a->nr || m < b->nr) && !ret;) {
		bool up = n == a->nr || (m < b->nr && b->s[m].start < a->s[n].start);

		ret = up ? add_run(s, &b->s[m], true) : add_run(s, &a->s[n], false);
		m += up;
		n += !up;
	}
	return ret ? zns_fail(err, ret, "no memory for lists of pages") : 0;
}

struct filling {
	struct send *s;
	struct live_task *t;
	struct zw_chunk *c;
	uint32_t nr; /* runs that were filled so far */
	size_t bytes, page;
};

static void emit(struct filling *f, uint64_t len)
{
	struct zw_run *from = &f->s->run[f->s->at];
	struct zw_run *last = f->nr ? &f->c->run[f->nr - 1] : NULL;

	if (last && last->vaddr + last->len == from->vaddr && last->parent == from->parent)
		last->len += len;
	else
		f->c->run[f->nr++] = (struct zw_run){ from->vaddr, len, from->parent };
	from->vaddr += len;
	from->len -= len;
	f->bytes += from->parent ? 0 : len;
	f->s->at += !from->len;
}

/* Collects the next ranges to read, as many as fit. *end: index behind the last run among them. */
static uint32_t next_ranges(const struct filling *f, struct iovec *v, size_t *end, size_t *sum)
{
	size_t room = ZW_CHUNK_BYTES - f->bytes, n = f->s->at;
	uint32_t nr = 0, runs = ZW_CHUNK_RUNS - f->nr;

	*sum = 0;
	for (; n < f->s->nr && runs && nr < TASK_READ_IOVS && *sum < room; n++, runs--) {
		const struct zw_run *r = &f->s->run[n];
		size_t len = zns_min(r->len, room - *sum);

		if (r->parent)
			continue;
		v[nr++] = (struct iovec){ (void *)(uintptr_t)r->vaddr, len };
		*sum += len;
	}
	*end = n;
	return nr;
}

/*
 * Handles the next page, which cannot be read together with others. If a running task has unmapped
 * it, it is left out.
 */
static int odd_page(struct filling *f, struct zns_err *err)
{
	struct zw_run *r = &f->s->run[f->s->at];

	if (!f->s->late)
		return zns_fail(err, -EFAULT, "cannot read the memory of task %d at %llx",
				f->t->pid, (unsigned long long)r->vaddr);
	if (zns_spans_add(&f->t->pending, r->vaddr, r->vaddr + f->page))
		return zns_fail(err, -ENOMEM, "no memory for lists of pages");
	r->vaddr += f->page;
	r->len -= f->page;
	f->s->at += !r->len;
	return 0;
}

static int fill_more(struct filling *f, struct zns_err *err)
{
	struct iovec remote[TASK_READ_IOVS];
	struct send *s = f->s;
	uint8_t *to = f->c->data + f->bytes;
	size_t end, sum;
	uint32_t nr = next_ranges(f, remote, &end, &sum);
	ssize_t got = 0;

	if (nr)
		got = s->late ? task_read_apart(&s->l.reader, f->t->pid, remote, nr, to) :
				task_read(f->t->pid, remote, nr, to);
	if ((got == -ESRCH || got == -ETIMEDOUT) && s->late) {
		/*
		 * The task has ended, or has mapped memory whose pages never arrive. End its
		 * tracker: the next round sends all pages of a task without one.
		 */
		zns_track_free(f->t->track);
		f->t->track = NULL;
		s->at = s->nr;
		return 0;
	}
	if (got < 0 && s->late)
		return zns_fail_sys(err, (int)got, "cannot read the memory of task %d at %p",
				    f->t->pid, remote[0].iov_base);
	if (nr && got <= 0 && !s->run[s->at].parent)
		return odd_page(f, err);
	while (s->at < end && (s->run[s->at].parent || got > 0)) {
		size_t len = s->run[s->at].parent ? s->run[s->at].len :
						    zns_min(s->run[s->at].len, (size_t)got);

		got -= s->run[s->at].parent ? 0 : (ssize_t)len;
		emit(f, len);
	}
	return 0;
}

/*
 * Called when all pages of a task are sent. For the next dump, a page that could not be read counts
 * as a page of a new area.
 */
static int end_task(struct send *s, struct live_task *t, struct zns_err *err)
{
	struct zns_spans sent = { 0 }, known = { 0 };
	int ret = 0;

	if (!s->l.again) { /* no keeper follows, so nobody needs the result */
		s->pid = 0;
		t->final = true;
		return 0;
	}
	ret = zns_spans_without(&t->send, &t->pending, &sent);
	if (!ret)
		ret = zns_spans_without(&t->areas, &t->pending, &known);
	if (!ret)
		ret = zns_spans_join(&t->parent, &sent);
	zns_spans_free(&sent);
	zns_spans_free(&t->areas);
	t->areas = known;
	zns_spans_free(&t->send);
	t->final = true;
	s->pid = 0;
	return ret ? zns_fail(err, ret, "no memory for lists of pages") : 0;
}

static int task_pages(struct send *s, struct packet *p, struct zns_err *err)
{
	struct live_task *t = live_find(&s->l, p->h.pid);
	struct zw_reply r = { .kind = ZW_KIND_PAGES };
	struct filling f = { .s = s, .t = t, .page = (size_t)getpagesize() };
	int ret = 0;

	if (!t || !t->pagemap[0]) {
		r.kind = ZW_KIND_NONE;
		reply_send(p->fd[0], &r, -1);
		return 0;
	}
	if (t->final || p->h.image >= ZW_CHUNKS || (s->pid && s->pid != t->pid))
		return zns_fail(err, -EPROTO, "criu asked for pages at a wrong time");
	f.c = &s->chunk[p->h.image];
	if (!s->pid)
		ret = begin_task(s, t, err);
	while (!ret && s->at < s->nr && f.nr < ZW_CHUNK_RUNS && f.bytes < ZW_CHUNK_BYTES)
		ret = fill_more(&f, err);
	if (!ret && !f.nr)
		ret = end_task(s, t, err);
	if (ret)
		return ret;
	r.size = f.nr;
	reply_send(p->fd[0], &r, -1);
	return 0;
}

void send_packet(struct helper *h, struct packet *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct send *s = h->send;
	int ret;

	switch (p->nr_fd ? p->h.op : 0) {
	case ZW_LIVE_SMAPS:
		ret = live_maps(&s->l, p, &err);
		break;
	case ZW_LIVE_FINAL:
		ret = task_final(s, p, &err);
		break;
	case ZW_SEND_PAGES:
		ret = task_pages(s, p, &err);
		break;
	case ZW_SEND_DONE:
		live_keep_commit(&s->l);
		ret = 0;
		reply_send(p->fd[0], &(struct zw_reply){ 0 }, -1);
		break;
	default:
		ret = zns_fail(&err, -EPROTO, "unknown request %u from criu", p->h.op);
	}
	if (ret && p->nr_fd)
		reply_error(p->fd[0], &err);
}

void send_end(struct helper *h)
{
	live_end(&h->send->l);
}
