/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Noise in the timing model, to test programs that measure: see controls.h. */
#include <stdlib.h>
#include <string.h>

#include "control.h"

static uint64_t jitter(struct emu *e, uint64_t ns)
{
	int64_t range = (int64_t)(ns * e->control->noise.jitter_pct / 100);

	if (range <= 0)
		return ns;
	return ns - range + emu_random(&e->control->noise.seed) % (2 * (uint64_t)range + 1);
}

uint64_t emu_noise_command(struct emu *e, uint64_t ns)
{
	return e->control->noise.jitter_pct ? jitter(e, ns) : ns;
}

uint64_t emu_noise(struct emu *e, uint64_t ns)
{
	if (e->control->noise.jitter_pct)
		ns = jitter(e, ns);
	if (e->control->noise.stall_every &&
	    !(emu_random(&e->control->noise.seed) % e->control->noise.stall_every))
		ns += e->control->noise.stall_us * UINT64_C(1000);
	return ns;
}

enum { HOST = 1, GC, STORM };

/* The burst in stretch @k; it lies fully inside the stretch. */
static void burst_of(const struct emu *e, uint64_t kind, uint64_t k, uint64_t every, uint64_t len,
		     uint64_t *from, uint64_t *to)
{
	uint64_t state = e->control->noise_key ^ kind << 56 ^ k * UINT64_C(0x9e3779b97f4a7c15), ns;

	ns = len / 2 + emu_random(&state) % (len + 1);
	ns = zns_min(ns, every);
	*from = k * every + emu_random(&state) % (every - ns + 1);
	*to = *from + ns;
}

static bool in_storm(const struct emu *e, uint64_t at)
{
	const struct zns_emu_noise *n = &e->control->noise;
	uint64_t every = (n->calm_ms + (uint64_t)n->storm_ms) * 1000000, from, to;

	if (!every)
		return true;
	burst_of(e, STORM, at / every, every, n->storm_ms * UINT64_C(1000000), &from, &to);
	return at >= from && at < to;
}

uint64_t emu_noise_seen(struct emu *e, uint64_t done)
{
	uint64_t every = e->control->noise.host_every_us * UINT64_C(1000), from, to;

	if (!every)
		return done;
	burst_of(e, HOST, done / every, every, e->control->noise.host_us * UINT64_C(1000), &from,
		 &to);
	return done >= from && done < to && in_storm(e, done) ? to : done;
}

void emu_noise_collect(struct emu *e, uint64_t at)
{
	uint64_t every = e->control->noise.gc_every_us * UINT64_C(1000), from, to;

	if (!every)
		return;
	/* book one stretch ahead, so that later bookings find it */
	for (e->control->gc_next = zns_max(e->control->gc_next, at / every);
	     e->control->gc_next <= at / every + 1; e->control->gc_next++) {
		burst_of(e, GC, e->control->gc_next, every,
			 e->control->noise.gc_us * UINT64_C(1000), &from, &to);
		if (!in_storm(e, from))
			continue;
		for (uint32_t i = 0; i < e->p.channels * e->p.ways; i++)
			emu_cal_book(&e->die_cal[i], from, to - from);
	}
}

void emu_noise_erase(struct emu *e, struct emu_cal *die, uint64_t from)
{
	uint64_t late = e->control->noise.erase_late_us * UINT64_C(1000);

	if (late)
		emu_cal_book(die, from + emu_random(&e->control->noise.seed) % late,
			     e->control->noise.erase_us * UINT64_C(1000));
}

static int check_bursts(const struct zns_emu_noise *n, struct zns_err *err)
{
	if (!n->host_every_us != !n->host_us || !n->gc_every_us != !n->gc_us ||
	    !n->erase_late_us != !n->erase_us || !n->calm_ms != !n->storm_ms)
		return zns_fail(
			err, -EINVAL,
			"noise in bursts needs both figures: host-every-us and host-us, gc-every-us and gc-us, erase-late-us and erase-us, calm-ms and storm-ms");
	if (n->host_us > n->host_every_us || n->gc_us > n->gc_every_us ||
	    n->host_every_us > 100000000 || n->gc_every_us > 100000000 ||
	    n->erase_late_us > 100000000 || n->erase_us > 10000000 || n->calm_ms > 100000 ||
	    n->storm_ms > 100000)
		return zns_fail(
			err, -EINVAL,
			"noise in bursts: a burst is at most as long as the stretch that it is in, a stretch, a calm or a storm 100 s, an erase 10 s");
	return 0;
}

int zns_emu_set_noise(struct zns_dev *dev, const struct zns_emu_noise *n, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc;

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	if (n->jitter_pct > 90 || n->stall_us > 10000000 || !n->stall_every != !n->stall_us)
		return zns_fail(
			err, -EINVAL,
			"noise of %u %%, a stall of %u us in every %u: at most 90 %% and 10 s; a stall needs both figures",
			n->jitter_pct, n->stall_us, n->stall_every);
	rc = check_bursts(n, err);
	if (rc)
		return rc;
	if (!emu_timing_active(e))
		return zns_fail(err, -EINVAL,
				"%s has no timing model to disturb: create it with --timing on",
				dev->path);
	rc = emu_model_enter(e, err);
	if (rc)
		return rc;
	e->control->noise = *n;
	e->control->noise_key = n->seed;
	e->control->gc_next = 0;
	emu_model_leave(e);
	return 0;
}

static bool parse_word(const char *word, struct zns_emu_noise *n)
{
	const struct {
		const char *name;
		uint32_t *to;
	} key[] = {
		{ "jitter", &n->jitter_pct }, { "stall-every", &n->stall_every },
		{ "stall-us", &n->stall_us }, { "host-every-us", &n->host_every_us },
		{ "host-us", &n->host_us },   { "gc-every-us", &n->gc_every_us },
		{ "gc-us", &n->gc_us },       { "erase-late-us", &n->erase_late_us },
		{ "erase-us", &n->erase_us }, { "calm-ms", &n->calm_ms },
		{ "storm-ms", &n->storm_ms },
	};
	const char *eq = strchr(word, '=');
	unsigned long long v;
	char *end;

	if (!eq || eq[1] < '0' || eq[1] > '9')
		return false;
	errno = 0;
	v = strtoull(eq + 1, &end, 10);
	if (*end || errno)
		return false;
	if (!strncmp(word, "seed=", 5)) {
		n->seed = v;
		return true;
	}
	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(key); i++) {
		if (v > UINT32_MAX || strlen(key[i].name) != (size_t)(eq - word) ||
		    strncmp(word, key[i].name, eq - word))
			continue;
		*key[i].to = v;
		return true;
	}
	return false;
}

int control_noise_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_NOISE");
	struct zns_emu_noise n = { 0 };
	char buf[512], *save = NULL;

	if (!env || !*env || !emu_timing_active(e))
		return 0;
	if (strlen(env) >= sizeof(buf))
		goto bad;
	memcpy(buf, env, strlen(env) + 1);
	for (char *word = strtok_r(buf, ",", &save); word; word = strtok_r(NULL, ",", &save))
		if (!parse_word(word, &n))
			goto bad;
	return zns_emu_set_noise(&e->dev, &n, err);
bad:
	return zns_fail(
		err, -EINVAL,
		"ZNS_EMU_NOISE=\"%.64s\": should be like \"jitter=5,stall-every=1000,stall-us=3000,seed=1\"",
		env);
}
