/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The page store of a memory context: open, write, read. See zns/pages.h. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include "pages_int.h"

#define PATIENCE_NS 1000000000ull /* ns that a put waits while dumps use all its dies */
#define LOOK_MS 20
#define SELDOM_NS 1000000000ull

/* ---- opening ---- */

static int take_over(struct zns_pages *ps, const struct zns_pages_params *p, struct zns_err *err)
{
	int ret;

	if (p->nr_fds != ZNS_PAGES_FDS)
		return zns_fail(err, -EINVAL, "a page store is handed over with %d descriptor",
				ZNS_PAGES_FDS);
	ps->lock_fd = fcntl(p->fds[0], F_DUPFD_CLOEXEC, 3);
	if (ps->lock_fd < 0)
		return zns_fail_sys(err, -errno,
				    "cannot look at the lock file of a memory context");
	ret = zns_context_read(ps->lock_fd, ps->nr_zones, &ps->context, err);
	if (ret)
		return ret;
	if (memcmp(ps->context.device, ps->s.reg.uuid, ZNS_UUID_LEN) ||
	    strcmp(ps->context.container, p->container) || ps->context.encrypted != !!p->key_fd)
		return zns_fail(err, -ESTALE, "these descriptors are of another memory context");
	if (p->key_fd)
		ret = zns_memory_key_take(*p->key_fd, ps->context.id, &ps->key, err);
	pages_look_plain(ps);
	return ret;
}

static int make(struct zns_pages *ps, const struct zns_pages_params *p, struct zns_err *err)
{
	int ret = zns_uuid_generate(ps->context.id), encrypt = p->encrypt;

	if (ret)
		return zns_fail_sys(err, ret, "no random UUID");
	if (!encrypt)
		encrypt = pages_encrypt(ps, err);
	ret = zns_min(encrypt, 0);
	if (!ret && encrypt)
		ret = zns_memory_key_new(ps->context.id, &ps->key, err);
	if (ret)
		return ret;
	ps->context.encrypted = encrypt;
	memcpy(ps->context.device, ps->s.reg.uuid, ZNS_UUID_LEN);
	snprintf(ps->context.container, sizeof(ps->context.container), "%s", p->container);
	ps->counted = true;
	return zns_context_create(&ps->context, ps->nr_zones, &ps->lock_fd, err);
}

/* Removes the lock file of a context for which the broker gave no lease. */
static void unmake(struct zns_pages *ps)
{
	char path[4096];

	if (!zns_context_path(ps->context.device, ps->context.id, path, sizeof(path)))
		unlink(path);
}

/* Starts a thread with all signals blocked, since signals are for the threads of the program. */
static int start_thread(struct zns_pages *ps, struct zns_err *err)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = lanes_start(ps, err);
	if (!ret) {
		ret = -pthread_create(&ps->keeper, NULL, pages_thread, ps);
		ps->keeps = !ret;
		if (ret)
			zns_fail_sys(err, ret, "cannot start a thread");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

static int set_up(struct zns_pages *ps, struct zns_err *err)
{
	ps->nr_zones = ps->s.dev->geo.nr_zones;
	ps->reading_nr = ps->nr_zones; /* an upper limit: there cannot be more groups than zones */
	ps->zones = calloc(ps->nr_zones, sizeof(*ps->zones));
	ps->reading = calloc(ps->reading_nr, sizeof(*ps->reading));
	ps->bucket = zns_bucket_new();
	if (!ps->zones || !ps->reading || !ps->bucket)
		return zns_fail(err, -ENOMEM, "no memory for a memory context");
	zns_bucket_set(ps->bucket, ps->qos_mibps);
	ps->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return ps->wake < 0 ? zns_fail_sys(err, -errno, "cannot make an eventfd") : 0;
}

int zns_pages_open(const struct zns_pages_params *p, struct zns_pages **out, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	struct zns_registered reg;
	struct zns_pages *ps;
	int ret;

	if (!err)
		err = &local;
	ret = p->container ? zns_check_container(p->container, err) :
			     zns_fail(err, -EINVAL, "a memory context has a name");
	if (!ret)
		ret = zns_resolve_device(p->dev, &reg, err);
	if (ret)
		return ret;
	ps = calloc(1, sizeof(*ps));
	if (!ps)
		return zns_fail(err, -ENOMEM, "no memory for a memory context");
	ps->s = (struct zns_session)ZNS_SESSION_INIT;
	ps->lock_fd = ps->mark_fd = ps->wake = -1;
	ps->qos_mibps = p->qos_mibps;
	ps->width = p->width;
	pthread_mutex_init(&ps->put, NULL);
	pthread_mutex_init(&ps->jobs, NULL);
	pthread_mutex_init(&ps->ask, NULL);
	pthread_mutex_init(&ps->count, NULL);
	pthread_cond_init(&ps->job_come, NULL);
	pthread_cond_init(&ps->job_gone, NULL);
	/*
	 * This session takes no readers' or writers' lock: the broker finds the context's zones in
	 * its lock file.
	 */
	ret = zns_session_connect(&ps->s, &reg, 0, err);
	if (!ret)
		ret = zns_dev_open(reg.path, ZNS_DEV_SERVED, &ps->s.dev, err);
	if (!ret)
		ret = set_up(ps, err);
	if (!ret)
		ret = p->nr_fds ? take_over(ps, p, err) : make(ps, p, err);
	/*
	 * make the mark after the lock file: a broker that finds the mark must also find that file
	 */
	if (!ret)
		ret = zns_context_mark(reg.path, &ps->mark_fd, err);
	if (!ret) {
		ret = pages_connect(ps, err);
		if (ret && !p->nr_fds)
			unmake(ps);
	}
	if (!ret)
		ret = start_thread(ps, err);
	if (ret) {
		zns_pages_close(ps, ps->connected && !p->nr_fds);
		return ret;
	}
	*out = ps;
	return 0;
}

void zns_pages_close(struct zns_pages *ps, bool end)
{
	if (!ps)
		return;
	ps->stop = true;
	if (ps->keeps) {
		pages_wake(ps);
		pthread_join(ps->keeper, NULL);
	}
	lanes_stop(ps);
	if (ps->mark_fd >= 0)
		close(ps->mark_fd);
	if (end)
		pages_end(ps);
	zns_session_close(&ps->s);
	if (ps->lock_fd >= 0)
		close(ps->lock_fd);
	if (ps->wake >= 0)
		close(ps->wake);
	zns_bucket_free(ps->bucket);
	zns_memory_key_free(ps->key);
	pthread_mutex_destroy(&ps->put);
	pthread_mutex_destroy(&ps->jobs);
	pthread_mutex_destroy(&ps->ask);
	pthread_mutex_destroy(&ps->count);
	pthread_cond_destroy(&ps->job_come);
	pthread_cond_destroy(&ps->job_gone);
	free(ps->over);
	free(ps->bad);
	free(ps->zones);
	free(ps->reading);
	free(ps);
}

int zns_pages_fds(const struct zns_pages *ps, int fds[ZNS_PAGES_FDS])
{
	fds[0] = ps->lock_fd;
	return ZNS_PAGES_FDS;
}

int zns_pages_key_fd(const struct zns_pages *ps)
{
	return ps->key ? zns_memory_key_fd(ps->key) : -1;
}

/* ---- writing ---- */

/*
 * Divides the remaining units among the lanes whose group no dump or restore uses; each lane gets
 * whole chunks. Returns the number of lanes that got some.
 */
static uint32_t divide(struct zns_pages *ps, const void *const units[], struct zns_pages_ref *refs,
		       uint32_t n, bool as_is, struct lane *part[LANES_MAX])
{
	uint32_t nr = 0, at = 0, each, i;

	for (i = 0; i < ps->nr_lanes; i++) {
		struct lane *l = &ps->lanes[(ps->next_lane + i) % ps->nr_lanes];

		if (!l->busy)
			part[nr++] = l;
	}
	if (!nr)
		return 0;
	ps->next_lane++;
	each = (n + nr - 1) / nr;
	each = (each + CHUNK_UNITS - 1) / CHUNK_UNITS * CHUNK_UNITS;
	for (i = 0; i < nr && at < n; i++) {
		struct lane *l = part[i];

		l->units = units + at;
		l->refs = refs + at;
		l->as_is = as_is;
		l->n = zns_min(each, n - at);
		l->done = 0;
		l->ret = 0;
		memset(&l->err, 0, sizeof(l->err));
		at += l->n;
	}
	return i;
}

static void run(struct zns_pages *ps, struct lane *part[], uint32_t nr)
{
	uint32_t i;

	if (nr == 1) {
		lane_write(part[0]);
		return;
	}
	pthread_mutex_lock(&ps->jobs);
	for (i = 0; i < nr; i++)
		part[i]->work = true;
	pthread_cond_broadcast(&ps->job_come);
	for (i = 0; i < nr; i++)
		while (part[i]->work)
			pthread_cond_wait(&ps->job_gone, &ps->jobs);
	pthread_mutex_unlock(&ps->jobs);
}

/*
 * Units that were not written yet, in the caller's order. `at`: their indices in the caller's
 * arrays.
 */
struct rest {
	const void **units;
	struct zns_pages_ref *refs;
	uint32_t *at;
	uint32_t n;
	bool as_is;
};

static void collect(struct rest *r, struct lane *part[], uint32_t nr,
		    struct zns_pages_ref *refs_out)
{
	uint32_t n = 0, base = 0;

	for (uint32_t i = 0; i < nr; i++) {
		const struct lane *l = part[i];

		for (uint32_t k = 0; k < l->n; k++) {
			uint32_t at = r->at[base + k];

			if (k < l->done) {
				refs_out[at] = l->refs[k];
				continue;
			}
			r->units[n] = l->units[k];
			r->at[n++] = at;
		}
		base += l->n;
	}
	r->n = n;
}

/* Evaluates a round. 0: continue with the remaining units; -EAGAIN: dumps use all dies, so wait. */
static int judge(struct lane *part[], uint32_t nr, struct zns_err *err)
{
	int ret = 0;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		const struct lane *l = part[i];

		if (!l->ret)
			continue;
		if (!ret || ret == -EAGAIN) {
			ret = l->ret;
			*err = l->err;
			err->code = ret;
		}
	}
	return ret;
}

static void drop_written(struct zns_pages *ps, struct zns_pages_ref *refs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (refs[i].place)
			zns_pages_drop(ps, refs[i]);
		refs[i] = (struct zns_pages_ref){ 0 };
	}
}

static int put_all(struct zns_pages *ps, struct rest *r, struct zns_pages_ref *out,
		   struct zns_err *err)
{
	uint64_t began = zns_mono_ns();
	struct lane *part[LANES_MAX];

	while (r->n) {
		uint32_t before = r->n, nr;
		int ret = pages_step(ps, LOOK_MS * 1000000ull, err);

		if (ret)
			return ret;
		if (ps->forbidden)
			return zns_fail(err, -EDQUOT,
					"this machine encrypts what goes to %s by now, and this "
					"context is not encrypted: `znsctl memory detach` it and "
					"attach it again",
					ps->s.reg.path);
		if (ps->give_way)
			for (uint32_t i = 0; i < ps->nr_lanes; i++)
				lane_let_go(&ps->lanes[i]);
		nr = divide(ps, r->units, r->refs, r->n, r->as_is, part);
		if (nr) {
			run(ps, part, nr);
			ret = judge(part, nr, err);
			collect(r, part, nr, out);
		} else {
			ret = pages_all_busy(err);
		}
		if (ret && ret != -EAGAIN)
			return ret;
		if (r->n < before)
			began = zns_mono_ns();
		else if (ret && zns_mono_ns() - began >= PATIENCE_NS)
			return ret;
		if (ret && !__atomic_load_n(&ps->connected, __ATOMIC_RELAXED))
			return ret;
		if (ret)
			nanosleep(&(struct timespec){ .tv_nsec = LOOK_MS * 1000000l }, NULL);
	}
	return 0;
}

static int put_units(struct zns_pages *ps, const void *const units[], uint32_t n, bool as_is,
		     struct zns_pages_ref *refs, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	struct rest r = { .n = n, .as_is = as_is };
	int ret;

	if (!err)
		err = &local;
	if (n > ZNS_PAGES_PUT_MAX)
		return zns_fail(err, -EINVAL, "at most %u units at once", ZNS_PAGES_PUT_MAX);
	memset(refs, 0, n * sizeof(*refs));
	r.units = malloc((n + 1) * sizeof(*r.units));
	r.refs = calloc(n + 1, sizeof(*r.refs));
	r.at = calloc(n + 1, sizeof(*r.at));
	if (!r.units || !r.refs || !r.at) {
		ret = zns_fail(err, -ENOMEM, "no memory for a list of units");
	} else {
		for (uint32_t i = 0; i < n; i++) {
			r.units[i] = units[i];
			r.at[i] = i;
		}
		pthread_mutex_lock(&ps->put);
		if (zns_mono_ns() - atomic_exchange(&ps->put_ns, zns_mono_ns()) > SELDOM_NS)
			/* wake the thread: from now on it asks the broker more often */
			pages_wake(ps);
		ret = put_all(ps, &r, refs, err);
		pthread_mutex_unlock(&ps->put);
		if (ret)
			drop_written(ps, refs, n);
	}
	free(r.units);
	free(r.refs);
	free(r.at);
	return ret;
}

int zns_pages_put(struct zns_pages *ps, const void *const units[], uint32_t n,
		  struct zns_pages_ref *refs, struct zns_err *err)
{
	return put_units(ps, units, n, false, refs, err);
}

int zns_pages_put_as_is(struct zns_pages *ps, const void *const units[], uint32_t n,
			struct zns_pages_ref *refs, struct zns_err *err)
{
	return put_units(ps, units, n, true, refs, err);
}

void zns_pages_rate(struct zns_pages *ps, uint32_t mibps)
{
	pthread_mutex_lock(&ps->ask);
	ps->qos_mibps = mibps;
	pthread_mutex_unlock(&ps->ask);
	zns_bucket_set(ps->bucket, mibps);
}

void zns_pages_group_limit(struct zns_pages *ps, uint64_t bytes)
{
	ps->group_limit = bytes;
}

/* ---- reading ---- */

/* Reads @len bytes at offset @off of a unit. */
static int read_part(struct zns_pages *ps, uint64_t place, uint32_t off, void *buf, uint32_t len,
		     struct zns_err *err)
{
	uint32_t zone, unit, group;
	int ret;

	if (!pages_where(ps, place, &zone, &unit))
		return zns_fail(err, -EINVAL, "no unit has the place %#llx",
				(unsigned long long)place);
	group = pages_pin(ps, zone, unit, &ret);
	if (ret)
		return zns_fail(err, ret, "unit %u of zone %u is not this context's", unit, zone);
	if (group < ps->reading_nr)
		ps->reading[group]++;
	ret = zns_dev_read(ps->s.dev, zone, (uint64_t)unit * ZNS_PAGES_UNIT + off, buf, len, err);
	if (group < ps->reading_nr)
		ps->reading[group]--;
	pages_unpin(ps, zone);
	if (ret) /* -ENOMEM says nothing about the unit: the caller may try again */
		return err->code = ret == -ENOMEM ? ret : -EIO;
	ps->read += len;
	return 0;
}

static int other_bytes(const struct zns_pages *ps, uint64_t place, struct zns_err *err)
{
	uint32_t zone = 0, unit = 0;

	pages_where(ps, place, &zone, &unit);
	return zns_fail(err, -EBADMSG, "unit %u of zone %u is not what was written", unit, zone);
}

int zns_pages_get_as_is(struct zns_pages *ps, struct zns_pages_ref ref, void *buf,
			struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	int ret;

	if (!err)
		err = &local;
	ret = read_part(ps, ref.place, 0, buf, ZNS_PAGES_UNIT, err);
	if (ret)
		return ret;
	return zns_hash(buf, ZNS_PAGES_UNIT) == ref.hash ? 0 : other_bytes(ps, ref.place, err);
}

int zns_pages_get(struct zns_pages *ps, struct zns_pages_ref ref, void *buf, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	int ret;

	if (!ps->key)
		return zns_pages_get_as_is(ps, ref, buf, err);
	if (!err)
		err = &local;
	ret = read_part(ps, ref.place, 0, buf, ZNS_PAGES_UNIT, err);
	if (ret)
		return ret;
	ret = zns_memory_open(ps->key, ref.nonce, buf, ZNS_PAGES_UNIT, ref.tag, err);
	return ret == -EBADMSG ? other_bytes(ps, ref.place, err) : ret;
}

int zns_pages_get_piece(struct zns_pages *ps, const struct zns_pages_ref *ref, uint32_t nr,
			void *buf, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	int ret;

	if (!err)
		err = &local;
	if (nr >= ZNS_PAGES_PIECES)
		return zns_fail(err, -EINVAL, "a unit has %u pieces", ZNS_PAGES_PIECES);
	if (ps->key)
		return zns_fail(err, -EOPNOTSUPP, "pieces of an encrypted unit");
	if (ZNS_PAGES_PIECE % ps->s.dev->geo.block_size)
		return zns_fail(err, -EOPNOTSUPP, "blocks of %u bytes", ps->s.dev->geo.block_size);
	ret = read_part(ps, ref->place, nr * ZNS_PAGES_PIECE, buf, ZNS_PAGES_PIECE, err);
	if (ret)
		return ret;
	return (uint32_t)zns_hash(buf, ZNS_PAGES_PIECE) == ref->piece[nr] ?
		       0 :
		       other_bytes(ps, ref->place, err);
}
