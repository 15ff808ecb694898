/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker suspend --all: before a shutdown, suspends as many containers as the time allows. The
 * engine stops the others by a signal, since a checkpoint that is killed halfway would leave them
 * neither memory nor a clean end.
 */
#include <fcntl.h>
#include <string.h>
#include "docker_cmd.h"
#include "zns/process.h"

#define SAMPLE_MS 500
/*
 * a container that uses at most this many ticks of CPU time within SAMPLE_MS counts as idle: 4 % at
 * 100 ticks a second
 */
#define IDLE_TICKS 2
/* bytes per second; assumed until a rate was measured, if the container requests none */
#define RATE_BYTES_S MIB(200)
#define OVERHEAD_NS 1000000000ull /* ns; fixed cost of one suspend */
#define ANSWER_S 5 /* s; dockerd may answer this long after the time is over */

struct all {
	struct docker_daemon *d;
	struct docker_candidate *list;
	size_t nr;
	uint64_t until_ns; /* ns of CLOCK_MONOTONIC; UINT64_MAX: no limit */
	bool limited;
	uint64_t bytes, took_ns; /* sums over the containers that were suspended so far */
	struct json_object *said;
	bool json, failed;
};

static uint64_t ticks_of(pid_t pid)
{
	return zns_process_tree(pid, ZNS_PROCESS_USER_TICKS) +
	       zns_process_tree(pid, ZNS_PROCESS_SYSTEM_TICKS);
}

/* Is it a container that is stopped by a checkpoint, from which a start resumes? */
static bool is_candidate(struct docker_daemon *d, const struct docker_target *t,
			 struct docker_candidate *o)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_settings s;
	uint32_t mibps;

	if (!t->running || !docker_daemon_is_ours(d, t->runtime) ||
	    docker_settings_read(&t->c, &s, &err) || !s.source[DOCKER_STOP] ||
	    strcmp(s.value[DOCKER_STOP], "checkpoint"))
		return false;
	memset(o, 0, sizeof(*o));
	snprintf(o->id, sizeof(o->id), "%s", t->c.id);
	snprintf(o->name, sizeof(o->name), "%s", t->c.name);
	o->pid = json_object_get_int(zns_json_get(zns_json_get(t->json, "State"), "Pid"));
	o->order = s.source[DOCKER_STOP_ORDER] ? strtoul(s.value[DOCKER_STOP_ORDER], NULL, 10) :
						 DOCKER_STOP_ORDER_DEFAULT;
	o->bytes = docker_resident(o->pid);
	if (s.source[DOCKER_QOS] && !zns_parse_mibps(s.value[DOCKER_QOS], &mibps))
		o->rate = MIB(mibps);
	return true;
}

static int find(struct all *a, struct zns_err *err)
{
	struct json_object *running = NULL;
	size_t n;
	int ret = docker_api_call(&a->d->api, "GET", "/containers/json", NULL, &running, err);

	if (ret)
		return ret;
	n = zns_json_len(running);
	a->list = calloc(n + 1, sizeof(*a->list));
	for (size_t i = 0; a->list && i < n; i++) {
		const char *id = zns_json_str(json_object_array_get_idx(running, i), "Id");
		struct zns_err ignored = ZNS_ERR_INIT;
		struct docker_target t = { 0 };

		/* a container that has ended meanwhile is skipped */
		if (id && !docker_target_open(a->d, id, &t, &ignored) &&
		    is_candidate(a->d, &t, &a->list[a->nr])) {
			/*
			 * note this now: if this program is killed, the engine stops the remaining
			 * containers by signals
			 */
			if (a->limited)
				docker_stop_by_signal(&t.c);
			a->nr++;
		}
		docker_target_close(&t);
	}
	json_object_put(running);
	return a->list ? 0 : zns_fail(err, -ENOMEM, "no memory for a list of containers");
}

static void sort(struct all *a)
{
	if (a->nr < 2)
		return;
	for (size_t i = 0; i < a->nr; i++)
		a->list[i].ticks = ticks_of(a->list[i].pid);
	usleep(SAMPLE_MS * 1000);
	for (size_t i = 0; i < a->nr; i++)
		a->list[i].idle = ticks_of(a->list[i].pid) - a->list[i].ticks <= IDLE_TICKS;
	docker_suspend_order(a->list, a->nr);
}

static uint64_t estimate_ns(const struct all *a, const struct docker_candidate *o)
{
	double rate = o->rate ? (double)o->rate : (double)RATE_BYTES_S;

	if (a->bytes && a->took_ns)
		rate = (double)a->bytes * 1e9 / (double)a->took_ns;
	return OVERHEAD_NS + (uint64_t)((double)o->bytes * 1e9 / rate);
}

static void say(struct all *a, const struct docker_candidate *o, const char *checkpoint,
		const char *why)
{
	if (a->json)
		json_object_array_add(a->said,
				      ctl_obj(J("container", (const char *)o->name),
					      J("bytes", o->bytes),
					      J("checkpoint", checkpoint ? checkpoint : ""),
					      J("why", why ? why : "")));
	else if (checkpoint)
		printf("%s is suspended, with checkpoint %s%s%s\n", o->name, checkpoint,
		       why ? ", but: " : "", why ? why : "");
	else
		printf("%s runs on, and its next stop is its signal: %s\n", o->name, why);
	fflush(stdout);
}

static void leave(struct all *a, const struct docker_target *t, const struct docker_candidate *o,
		  const char *why)
{
	int ret = docker_stop_by_signal(&t->c);

	if (ret) {
		fprintf(stderr,
			"znsctl docker suspend: %s: cannot be set to stop by its signal the next time: %s\n",
			o->name, strerror(-ret));
		a->failed = true;
	}
	say(a, o, NULL, why);
}

static void one(struct all *a, const struct docker_candidate *o)
{
	uint64_t began = zns_mono_ns(), want = estimate_ns(a, o), left;
	struct zns_err err = ZNS_ERR_INIT, now = ZNS_ERR_INIT;
	struct docker_target t = { 0 };
	char name[64], why[100];

	left = a->until_ns > began ? a->until_ns - began : 0;
	if (a->limited)
		a->d->api.limit_s = (unsigned)(left / 1000000000u) + ANSWER_S;
	if (docker_target_open(a->d, o->id, &t, &err) || !t.running) {
		docker_target_close(&t);
		return;
	}
	if (ctl_caught(&err)) {
		a->failed = true;
		leave(a, &t, o, err.msg);
		docker_target_close(&t);
		return;
	}
	docker_time_name(DOCKER_STOP_PREFIX, name, sizeof(name));
	if (want > left) {
		snprintf(why, sizeof(why), "it takes some %.1f s, and %.1f s are left",
			 (double)want / 1e9, (double)left / 1e9);
		leave(a, &t, o, why);
	} else if (docker_suspend_one(a->d, &t, name, a->limited ? "share" : NULL, &err)) {
		a->failed = true;
		docker_target_close(&t);
		t = (struct docker_target){ 0 };
		if (!docker_target_open(a->d, o->id, &t, &now) && t.running)
			leave(a, &t, o, err.msg);
		else
			say(a, o, name, err.msg);
	} else {
		docker_stops_by_signal(&t.c);
		a->bytes += o->bytes;
		a->took_ns += zns_mono_ns() - began;
		say(a, o, name, NULL);
	}
	docker_target_close(&t);
}

int docker_suspend_all(struct docker_daemon *d, bool json, bool limited, uint64_t within_s,
		       struct zns_err *err)
{
	struct all a = { .d = d,
			 .json = json,
			 .limited = limited,
			 .until_ns = limited ? zns_mono_ns() + within_s * 1000000000ull :
					       UINT64_MAX };
	int ret = find(&a, err);

	if (ret)
		return ret;
	a.said = json_object_new_array();
	sort(&a);
	for (size_t i = 0; i < a.nr; i++)
		one(&a, &a.list[i]);
	if (json)
		ctl_print_list("containers", a.said);
	else
		json_object_put(a.said);
	free(a.list);
	return a.failed ? zns_fail(err, -EIO, "not all containers could be suspended") : 0;
}
