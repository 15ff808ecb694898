/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The page store's requests to the broker, and the thread that sends them: it watches the
 * connection, finds or starts the next broker, gives back zones, and reports.
 */
#include <poll.h>
#include <string.h>
#include "zns/grow.h"
#include "zns/writer.h"
#include "pages_int.h"

/* ms between two reports; a dump may have to wait so long for zones of this context */
#define REPORT_MS 1000u
#define QUIET_MS 2000u /* ms between two reports while nothing is read or written */
#define WRITES_MS 200u /* ms between two reports while units are written */
#define WRITES_NS 2000000000ull /* ns after a write during which WRITES_MS applies */
#define AGAIN_NS 1000000000ull /* ns between two attempts to find a broker */
#define RATE_NS 1000000000ull /* ns over which the write rate is measured */
#define FREE_AT_ONCE 64u

static int lost(struct zns_pages *ps, struct zns_err *err)
{
	zns_broker_close(&ps->s.broker);
	__atomic_store_n(&ps->connected, false, __ATOMIC_RELAXED);
	pages_wake(ps);
	return zns_fail(err, -EAGAIN, "the broker of %s is gone; the next one is being looked for",
			ps->s.reg.path);
}

/*
 * Has the broker closed the connection? It never sends anything without a request, so any input
 * means that.
 */
static bool hung_up(const struct zns_pages *ps)
{
	struct pollfd p = { .fd = ps->s.broker.fd, .events = POLLIN | POLLRDHUP };

	return poll(&p, 1, 0) != 0;
}

/*
 * Call with `ask` held. Closes the connection if the connection failed, but not if the request did.
 */
static int call(struct zns_pages *ps, ZnsPb__Request *q, ZnsPb__Response **r, struct zns_err *err)
{
	int ret;

	*r = NULL;
	if (!ps->connected)
		return zns_fail(err, -EAGAIN, "%s has no broker now", ps->s.reg.path);
	if (hung_up(ps))
		return lost(ps, err);
	ret = zns_broker_call(&ps->s.broker, q, r, err);
	if (ret == -EPIPE || ret == -ECONNRESET || ret == -ETIMEDOUT || ret == -EBADMSG)
		return lost(ps, err);
	return ret;
}

/* Call with `ask` held: announces the context to a broker that does not know it yet. */
static int begin(struct zns_pages *ps, ZnsPb__Response **r, struct zns_err *err)
{
	ZnsPb__MemoryBegin b = ZNS_PB__MEMORY_BEGIN__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	int ret;

	b.context = (ProtobufCBinaryData){ ZNS_UUID_LEN, ps->context.id };
	b.has_qos_mibps = b.has_width = 1;
	b.qos_mibps = ps->qos_mibps;
	b.width = ps->width;
	q.memory_begin = &b;
	ret = zns_broker_call(&ps->s.broker, &q, r, err);
	if (!ret && (!(*r)->memory || !(*r)->memory->n_groups)) {
		zns_pb__response__free_unpacked(*r, NULL);
		ret = zns_fail(err, -EPROTO, "the broker granted no group");
	}
	return ret;
}

int pages_connect(struct zns_pages *ps, struct zns_err *err)
{
	struct zns_zone_slot slot;
	ZnsPb__Response *r;
	size_t i;
	int ret = begin(ps, &r, err);

	if (ret)
		return ret;
	for (i = 0; i < r->memory->n_groups && ps->nr_lanes < LANES_MAX; i++) {
		struct lane *l = &ps->lanes[ps->nr_lanes++];

		l->ps = ps;
		l->group = r->memory->groups[i];
		l->zone = NO_ZONE;
	}
	for (i = 0; !ret && i < r->memory->n_zones; i++) {
		ret = zns_session_slot(ps->s.dev, r->memory->zones[i], &slot, err);
		if (!ret)
			pages_got_zone(ps, &slot, slot.start, false);
	}
	zns_pb__response__free_unpacked(r, NULL);
	ps->connected = !ret;
	return ret;
}

/*
 * Adjusts the lanes to the groups that the next broker has granted, which may be others, or fewer.
 */
static void regroup(struct zns_pages *ps, const ZnsPb__MemoryGrant *g)
{
	for (uint32_t i = 0; i < ps->nr_lanes; i++)
		ps->lanes[i].group = g->groups[i % g->n_groups];
}

/*
 * Call with `ask` held: reports failed zones. Otherwise the broker would grant them to others once
 * they are given back.
 */
static void tell_bad(struct zns_pages *ps)
{
	ZnsPb__MemoryFree f = ZNS_PB__MEMORY_FREE__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;

	f.not_zones = ps->bad;
	f.n_not_zones = ps->nr_bad;
	q.memory_free = &f;
	if (ps->nr_bad && !call(ps, &q, &r, NULL))
		zns_pb__response__free_unpacked(r, NULL);
}

/*
 * Finds the next broker, which has read our zones in the lock file. No lane continues a zone that
 * it was writing before. `ask` is not held during the search, so no other thread waits for it.
 */
static void reconnect(struct zns_pages *ps)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Response *r;
	struct zns_broker b;

	if (zns_broker_connect(&ps->s.reg, &b, &err))
		return;
	pthread_mutex_lock(&ps->ask);
	ps->s.broker = b;
	if (begin(ps, &r, &err)) {
		zns_broker_close(&ps->s.broker);
	} else {
		regroup(ps, r->memory);
		zns_pb__response__free_unpacked(r, NULL);
		ps->epoch++;
		ps->nr_over = 0;
		ps->step_ns = 0;
		*ps->refused = 0;
		__atomic_store_n(&ps->connected, true, __ATOMIC_RELAXED);
		tell_bad(ps);
	}
	pthread_mutex_unlock(&ps->ask);
}

void pages_over(struct zns_pages *ps, uint32_t zone, bool bad)
{
	pthread_mutex_lock(&ps->ask);
	/*
	 * Without memory, the zone is not reported now. The broker notices when this lane asks for
	 * the next zone.
	 */
	if (!zns_grow(ps->over, ps->nr_over, ps->max_over))
		ps->over[ps->nr_over++] = zone;
	if (bad && !zns_grow(ps->bad, ps->nr_bad, ps->max_bad))
		ps->bad[ps->nr_bad++] = zone;
	pthread_mutex_unlock(&ps->ask);
}

int pages_ask_zone(struct zns_pages *ps, struct lane *l, struct zns_err *err)
{
	ZnsPb__MemoryZone z = ZNS_PB__MEMORY_ZONE__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	struct zns_zone_slot slot;
	ZnsPb__Response *r;
	int ret;

	pthread_mutex_lock(&ps->ask);
	z.group = l->group;
	z.done_zones = ps->over;
	z.n_done_zones = ps->nr_over;
	z.not_zones = ps->bad;
	z.n_not_zones = ps->nr_bad;
	q.memory_zone = &z;
	ret = call(ps, &q, &r, err);
	if (ret != -EAGAIN) /* an answer: the broker knows the failed zones now */
		ps->nr_over = 0;
	if (!ret) {
		ret = zns_session_slot(ps->s.dev, r->zone, &slot, err);
		zns_pb__response__free_unpacked(r, NULL);
		if (!ret && slot.start)
			ret = zns_fail(err, -EPROTO, "znsd granted a zone that is not empty");
		if (!ret) {
			l->zone = slot.zone;
			l->zone_group = slot.group;
			l->wp = 0;
			l->capacity = slot.capacity;
			l->epoch = ps->epoch;
			pages_got_zone(ps, &slot, 0, true);
		}
	} else if (ret == -EBUSY) {
		ret = err ? (err->code = -EAGAIN) : -EAGAIN;
	}
	pthread_mutex_unlock(&ps->ask);
	return ret;
}

/* Notes for each lane whether a dump or restore uses its group. */
static void note_busy(struct zns_pages *ps, const ZnsPb__Response *r)
{
	for (uint32_t i = 0; i < ps->nr_lanes; i++) {
		struct lane *l = &ps->lanes[i];
		bool busy = false;

		for (size_t k = 0; k < r->n_busy_groups; k++)
			busy |= r->busy_groups[k] == l->group;
		l->busy = busy;
	}
	ps->give_way = r->give_way;
	pages_named(ps, r->named_zones, r->n_named_zones);
}

/* Call with `ask` held. Pauses without writes are not counted. */
static void measure(struct zns_pages *ps)
{
	uint64_t now = zns_mono_ns(), written = ps->written;

	if (now - ps->put_ns > RATE_NS || now - ps->rate_ns > 3 * RATE_NS) {
		ps->rate_ns = now;
		ps->rate_from = written;
	} else if (now - ps->rate_ns >= RATE_NS) {
		ps->rate = (written - ps->rate_from) * 1000000 / ((now - ps->rate_ns) / 1000);
		ps->rate_ns = now;
		ps->rate_from = written;
	}
}

/*
 * Reports to the broker and asks which groups are busy, unless its last answer is newer than
 * @older_than_ns.
 */
int pages_step(struct zns_pages *ps, uint64_t older_than_ns, struct zns_err *err)
{
	ZnsPb__MemoryStep s = ZNS_PB__MEMORY_STEP__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	uint32_t groups[LANES_MAX], i;
	struct zns_pages_stat st;
	ZnsPb__Response *r;
	int ret = 0;

	pthread_mutex_lock(&ps->ask);
	if (!ps->step_ns || zns_mono_ns() - ps->step_ns >= older_than_ns ||
	    ps->written >= ps->ask_at) {
		measure(ps);
		zns_pages_stat(ps, &st);
		for (i = 0; i < ps->nr_lanes; i++)
			groups[i] = ps->lanes[i].group;
		s.groups = groups;
		s.n_groups = ps->nr_lanes;
		s.has_live = s.has_dead = s.has_written = s.has_read = 1;
		s.live = st.live_bytes;
		s.dead = st.dead_bytes;
		s.written = st.written_bytes;
		s.read = st.read_bytes;
		s.has_group_limit = 1;
		s.group_limit = ps->group_limit;
		s.done_zones = ps->over;
		s.n_done_zones = ps->nr_over;
		q.memory_step = &s;
		ret = call(ps, &q, &r, err);
		if (!ret) {
			ps->nr_over = 0;
			ps->step_ns = zns_mono_ns();
			note_busy(ps, r);
			ps->ask_at = r->has_may_write &&
						     r->may_write < UINT64_MAX - st.written_bytes ?
					     st.written_bytes + r->may_write :
					     UINT64_MAX;
			snprintf(ps->refused, sizeof(ps->refused), "%s",
				 r->refused ? r->refused : "");
			zns_pb__response__free_unpacked(r, NULL);
		}
	}
	if (!ret && *ps->refused)
		ret = zns_fail(err, -EDQUOT, "%s", ps->refused);
	pthread_mutex_unlock(&ps->ask);
	return ret;
}

/*
 * Removes zones that were given back from the list of failed ones: the broker does not accept a
 * report about a zone that it has back.
 */
static void forget_bad(struct zns_pages *ps)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < ps->nr_bad; i++)
		if (ps->zones[ps->bad[i]].have)
			ps->bad[nr++] = ps->bad[i];
	ps->nr_bad = nr;
}

static void give_back(struct zns_pages *ps)
{
	ZnsPb__MemoryFree f = ZNS_PB__MEMORY_FREE__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	uint32_t zones[FREE_AT_ONCE];
	ZnsPb__Response *r;
	int ret;

	do {
		f.n_zones = pages_take_free(ps, zones, FREE_AT_ONCE);
		f.zones = zones;
		if (!f.n_zones)
			return;
		q.memory_free = &f;
		pthread_mutex_lock(&ps->ask);
		f.not_zones = ps->bad; /* report them before they are given back */
		f.n_not_zones = ps->nr_bad;
		ret = call(ps, &q, &r, NULL);
		pages_gave_back(ps, zones, (uint32_t)f.n_zones, !ret);
		forget_bad(ps);
		pthread_mutex_unlock(&ps->ask);
		if (!ret)
			zns_pb__response__free_unpacked(r, NULL);
	} while (!ret);
}

void pages_end(struct zns_pages *ps)
{
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;

	q.has_abort = q.abort = 1;
	pthread_mutex_lock(&ps->ask);
	tell_bad(ps);
	if (!call(ps, &q, &r, NULL))
		zns_pb__response__free_unpacked(r, NULL);
	pthread_mutex_unlock(&ps->ask);
}

/*
 * Gives back the lanes' zones if a dump or another context waits for them, unless a put is running.
 */
static void give_way(struct zns_pages *ps)
{
	if (!ps->give_way || pthread_mutex_trylock(&ps->put))
		return;
	for (uint32_t i = 0; i < ps->nr_lanes; i++)
		lane_let_go(&ps->lanes[i]);
	pthread_mutex_unlock(&ps->put);
	pages_step(ps, 0, NULL);
}

/*
 * Returns the descriptor that becomes readable when the broker closes the connection; -1: none at
 * present.
 */
static int broker_fd(struct zns_pages *ps)
{
	int fd;

	pthread_mutex_lock(&ps->ask);
	fd = ps->connected ? ps->s.broker.fd : -1;
	pthread_mutex_unlock(&ps->ask);
	return fd;
}

/* @moved: bytes that were read and written until the last call. */
static uint32_t until_report_ms(struct zns_pages *ps, uint64_t *moved)
{
	struct zns_pages_stat st;
	uint64_t before = *moved;

	zns_pages_stat(ps, &st);
	*moved = st.written_bytes + st.read_bytes;
	if (zns_mono_ns() - ps->put_ns < WRITES_NS)
		return WRITES_MS;
	return *moved == before ? QUIET_MS : REPORT_MS;
}

void *pages_thread(void *arg)
{
	struct zns_pages *ps = arg;
	uint64_t tried = 0, moved = 0, drained;

	while (!ps->stop) {
		uint32_t ms = until_report_ms(ps, &moved);
		struct pollfd p[2] = { { .fd = ps->wake, .events = POLLIN },
				       { .fd = broker_fd(ps), .events = POLLRDHUP } };

		if (p[1].fd < 0 && zns_mono_ns() - tried >= AGAIN_NS) {
			tried = zns_mono_ns();
			reconnect(ps);
			continue;
		}
		poll(p, 2, (int)ms);
		if (read(ps->wake, &drained, sizeof(drained)) < 0)
			drained = 0;
		if (ps->stop)
			break;
		pages_look_plain(ps);
		/* this call also notices that the broker is gone */
		pages_step(ps, p[1].revents ? 0 : ms * 900000ull, NULL);
		give_back(ps);
		give_way(ps);
	}
	return NULL;
}
