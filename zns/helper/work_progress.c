/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See work_progress.h. */
#include <errno.h>
#include <json.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "helper.h"
#include "journal.h"
#include "work_progress.h"

#define TICK_NS 100000000u /* ns between two checks whether the rate has changed */
#define SHOW_NS 500000000u /* ns between two progress lines */
#define SILENT_NS 1000000000u /* ns; work that is shorter shows nothing on a terminal */
#define CLEAR "\r\033[K"
/* ms to wait until the reader of a pipe makes room for the last JSON line */
#define LAST_LINE_MS 1000

struct progress {
	struct helper *h;
	struct progress_params p;
	char container[256], id[ZNS_UUID_STR];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop, joined;
	/* shown: a progress line is on the terminal; hushed: show none any more */
	bool shown, hushed;
	uint64_t start_ns, total;
	/* start of the interval of a second or two over which the current rate is measured */
	uint64_t at_ns, at_bytes;
	double mibps;
};

/*
 * Writes a line, but skips it if a pipe is full or a terminal is stopped. Lines are shorter than
 * PIPE_BUF.
 */
static void put(int fd, const char *text, int wait_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n;

	if (fd < 0 || poll(&p, 1, wait_ms) != 1 || !(p.revents & POLLOUT))
		return;
	do {
		n = write(fd, text, strlen(text));
	} while (n < 0 && errno == EINTR);
}

static void sample(struct progress *g, struct work *w)
{
	uint64_t now = zns_mono_ns();
	double rate, dt;

	g->p.get(g->p.arg, w);
	if (!g->at_ns) {
		g->at_ns = now;
		g->at_bytes = w->bytes;
		return;
	}
	dt = (double)(now - g->at_ns) / 1e9;
	if (dt < 0.4)
		return;
	rate = w->bytes > g->at_bytes ? (double)(w->bytes - g->at_bytes) / (double)MIB(1) / dt : 0;
	g->mibps = g->mibps > 0 ? 0.5 * g->mibps + 0.5 * rate : rate;
	g->at_ns = now;
	g->at_bytes = w->bytes;
}

/* Estimated seconds until the work is done; negative: unknown. */
static double left(const struct progress *g, const struct work *w)
{
	if (!g->total || g->mibps <= 0 || w->bytes >= g->total)
		return -1;
	return (double)(g->total - w->bytes) / (double)MIB(1) / g->mibps;
}

static void show_line(struct progress *g, const struct work *w)
{
	char done[32], all[32], line[256], rest[64] = "";
	int n;

	if (g->total > w->bytes)
		snprintf(rest, sizeof(rest), " of %s%s, %u %%", g->p.guess ? "about " : "",
			 zns_format_size(g->total, all, sizeof(all)),
			 (unsigned)(100 * w->bytes / g->total));
	n = snprintf(line, sizeof(line), "\rzns: %s of %.60s: %s%s, %.0f MiB/s", g->p.op,
		     g->container, zns_format_size(w->bytes, done, sizeof(done)), rest, g->mibps);
	if (left(g, w) >= 0)
		n += snprintf(line + n, sizeof(line) - (size_t)n, ", %.0f s left", left(g, w));
	snprintf(line + n, sizeof(line) - (size_t)n, CLEAR + 1);
	pthread_mutex_lock(&g->lock);
	if (!g->hushed)
		put(g->p.tty, line, 0);
	g->shown = !g->hushed;
	pthread_mutex_unlock(&g->lock);
}

void progress_hush(struct helper *h)
{
	struct progress *g = h->progress;

	if (!g)
		return;
	pthread_mutex_lock(&g->lock);
	if (g->shown)
		put(g->p.tty, CLEAR, 0);
	g->shown = false;
	g->hushed = true;
	pthread_mutex_unlock(&g->lock);
}

/* Replaces the progress line on the terminal by a line that stays. */
static void show_end(const struct progress *g, const struct work *w, const struct outcome *how)
{
	char size[32], asked[48] = "", got[48] = ", too short to rate", frozen[48] = "", line[256];

	if (!g->shown)
		return;
	if (how->achieved_mibps > 0)
		snprintf(got, sizeof(got), ", %.0f MiB/s", how->achieved_mibps);
	if (g->p.qos_mibps)
		snprintf(asked, sizeof(asked), " (%u asked)", g->p.qos_mibps);
	if (how->frozen_us)
		snprintf(frozen, sizeof(frozen), ", frozen %.2f s", (double)how->frozen_us / 1e6);
	snprintf(line, sizeof(line), CLEAR "zns: %s of %.60s: %s%s%s%s\n", g->p.op, g->container,
		 zns_format_size(w->bytes, size, sizeof(size)), got, asked, frozen);
	put(g->p.tty, how->ok ? line : CLEAR, 0);
}

/* Rounded to one decimal: 17 digits would suggest a precision that the figure does not have. */
static struct json_object *json_figure(double v)
{
	char text[32];

	snprintf(text, sizeof(text), "%.1f", v);
	return json_object_new_double_s(v, text);
}

static struct json_object *line_of(const struct progress *g, const char *event,
				   const struct work *w)
{
	struct json_object *j = json_object_new_object();
	char when[32];
	double s = left(g, w);
	uint32_t limit = zns_bucket_rate(g->h->bucket);

	json_object_object_add(j, "event", json_object_new_string(event));
	json_object_object_add(j, "op", json_object_new_string(g->p.op));
	json_object_object_add(j, "time",
			       json_object_new_string(
				       zns_format_time(zns_now_ns(), when, sizeof(when))));
	json_object_object_add(j, "container", json_object_new_string(g->container));
	json_object_object_add(j, "checkpoint", json_object_new_string(g->id));
	json_object_object_add(j, "bytes", json_object_new_int64((int64_t)w->bytes));
	json_object_object_add(j, "total",
			       g->total ?
				       json_object_new_int64((int64_t)zns_max(g->total, w->bytes)) :
				       NULL);
	json_object_object_add(j, "mibps", json_figure(g->mibps));
	json_object_object_add(j, "left_s", s >= 0 ? json_figure(s) : NULL);
	json_object_object_add(j, "qos_requested_mibps",
			       g->p.qos_mibps ? json_object_new_int64(g->p.qos_mibps) : NULL);
	json_object_object_add(j, "limit_mibps", limit ? json_object_new_int64(limit) : NULL);
	return j;
}

static void put_json(const struct progress *g, struct json_object *j, int wait_ms)
{
	const char *text = json_object_to_json_string_ext(
		j, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	char line[4096]; /* shorter than PIPE_BUF, so written in one piece */
	int n = snprintf(line, sizeof(line), "%s\n", text);

	if (n > 0 && (size_t)n < sizeof(line))
		put(g->p.json, line, wait_ms);
	json_object_put(j);
}

/*
 * Reports progress to the broker. Returns false if the connection has failed. *again_ns: time of
 * the next report.
 */
static bool tell_broker(struct progress *g, const struct work *w, uint64_t *again_ns)
{
	ZnsPb__Progress pr = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	pr.bytes = w->bytes;
	pr.has_total = pr.has_page_bytes = pr.has_data_us = 1;
	pr.total = g->total;
	pr.page_bytes = w->page_bytes;
	pr.data_us = w->data_us;
	pr.has_moved = 1;
	pr.moved = zns_bucket_passed(g->h->bucket);
	if (g->p.wants) {
		bool waits;

		pr.has_more_zones = pr.has_waits = 1;
		pr.more_zones = g->p.wants(g->p.arg, &waits);
		pr.waits = waits;
	}
	req.progress = &pr;
	ret = zns_session_ask(&g->h->s, &req, &resp, &err);
	if (ret == -ETIMEDOUT && g->p.dead)
		g->p.dead(g->p.arg, &err);
	if (ret)
		return false;
	helper_set_rate(g->h, resp->rate_mibps);
	if (g->p.told)
		g->p.told(g->p.arg, resp);
	if (resp->has_again_ms)
		*again_ns = zns_min(*again_ns, zns_max(resp->again_ms, 1u) * UINT64_C(1000000));
	zns_pb__response__free_unpacked(resp, NULL);
	return true;
}

static void *run(void *arg)
{
	struct progress *g = arg;
	bool broker = true;
	struct work w;
	uint64_t next = g->start_ns, show = g->start_ns;

	for (bool first = true;; first = false) {
		uint64_t again = TICK_NS;
		struct timespec ts;
		bool stop, due;

		sample(g, &w);
		/*
		 * without a broker a dump fails elsewhere, and a restore goes on at the last rate
		 */
		if (broker)
			broker = tell_broker(g, &w, &again);
		due = first || next >= show + SHOW_NS;
		if (due)
			show = next;
		if (g->p.json >= 0 && due)
			put_json(g, line_of(g, first ? "begin" : "progress", &w), 0);
		if (g->p.tty >= 0 && due && zns_mono_ns() - g->start_ns >= SILENT_NS)
			show_line(g, &w);
		next = zns_max(next + again, zns_mono_ns());
		ts = (struct timespec){ .tv_sec = (time_t)(next / 1000000000u),
					.tv_nsec = (long)(next % 1000000000u) };
		pthread_mutex_lock(&g->lock);
		while (!g->stop &&
		       !pthread_cond_clockwait(&g->wake, &g->lock, CLOCK_MONOTONIC, &ts))
			;
		stop = g->stop;
		pthread_mutex_unlock(&g->lock);
		if (stop)
			return NULL;
	}
}

int progress_start(struct helper *h, const struct progress_params *p, struct zns_err *err)
{
	struct progress *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return zns_fail(err, -ENOMEM, "no memory for progress");
	g->h = h;
	g->p = *p;
	g->total = p->total;
	snprintf(g->container, sizeof(g->container), "%s", p->container);
	zns_uuid_format(p->checkpoint, g->id);
	g->start_ns = zns_mono_ns();
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->wake, NULL);
	ret = -pthread_create(&g->thread, NULL, run, g);
	if (ret) {
		free(g);
		return zns_fail_sys(err, ret, "cannot start a thread");
	}
	h->progress = g;
	return 0;
}

void progress_stop(struct helper *h, const struct outcome *how)
{
	struct progress *g = h->progress;
	struct json_object *j;
	struct work w;

	if (!g)
		return;
	pthread_mutex_lock(&g->lock);
	g->stop = true;
	pthread_cond_signal(&g->wake);
	pthread_mutex_unlock(&g->lock);
	if (!g->joined)
		pthread_join(g->thread, NULL);
	g->joined = true;
	if (!how)
		return;
	h->progress = NULL;
	g->p.get(g->p.arg, &w);
	g->p.container = g->container;
	journal_end(h, &g->p, &w, how);
	h->journaled = true;
	show_end(g, &w, how);
	if (g->p.json < 0)
		return;
	if (how->ok)
		g->total = w.bytes;
	j = line_of(g, how->ok ? "done" : "failed", &w);
	if (how->ok) {
		json_object_object_add(j, "qos_achieved_mibps",
				       how->achieved_mibps > 0 ? json_figure(how->achieved_mibps) :
								 NULL);
		json_object_object_add(j, "data_phase_us",
				       json_object_new_int64((int64_t)w.data_us));
		json_object_object_add(j, "frozen_us",
				       how->frozen_us ?
					       json_object_new_int64((int64_t)how->frozen_us) :
					       NULL);
		json_object_object_add(j, "zones", json_object_new_int64(how->zones));
		json_object_object_add(j, "groups", json_object_new_int64(how->groups));
		json_object_object_add(j, "shared_groups",
				       json_object_new_int64(how->shared_groups));
	} else {
		json_object_object_add(j, "error",
				       json_object_new_string(how->error ? how->error :
									   "it did not end well"));
	}
	put_json(g, j, LAST_LINE_MS);
}
