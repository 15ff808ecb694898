/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Noise in the timing model, for tests of what measures: see zns/emu.h. */
#include <stdlib.h>
#include <string.h>

#include "emu_priv.h"

static uint64_t jitter(struct emu *e, uint64_t ns)
{
	int64_t range = (int64_t)(ns * e->noise.jitter_pct / 100);

	if (range <= 0)
		return ns;
	return ns - range + emu_random(&e->noise.seed) % (2 * (uint64_t)range + 1);
}

uint64_t emu_noise_command(struct emu *e, uint64_t ns)
{
	return e->noise.jitter_pct ? jitter(e, ns) : ns;
}

uint64_t emu_noise(struct emu *e, uint64_t ns)
{
	if (e->noise.jitter_pct)
		ns = jitter(e, ns);
	if (e->noise.stall_every && !(emu_random(&e->noise.seed) % e->noise.stall_every))
		ns += e->noise.stall_us * UINT64_C(1000);
	return ns;
}

int zns_emu_set_noise(struct zns_dev *dev, const struct zns_emu_noise *n, struct zns_err *err)
{
	struct emu *e = emu_of(dev);
	int rc;

	if (dev->ops != &emu_ops)
		return emu_refuse_foreign(dev, err);
	if (n->jitter_pct > 90 || n->stall_us > 10000000 || !n->stall_every != !n->stall_us)
		return zns_fail(err, -EINVAL,
				"noise of %u %%, a stall of %u us in every %u: at most 90 %% and 10 s; a stall needs both figures",
				n->jitter_pct, n->stall_us, n->stall_every);
	if (!emu_timing_active(e))
		return zns_fail(err, -EINVAL, "%s has no timing model to disturb: create it with --timing on", dev->path);
	rc = emu_model_enter(e, err);
	if (rc)
		return rc;
	e->noise = *n;
	emu_model_leave(e);
	return 0;
}

static bool parse_word(const char *word, struct zns_emu_noise *n)
{
	const char *eq = strchr(word, '=');
	unsigned long long v;
	char *end;

	if (!eq || eq[1] < '0' || eq[1] > '9')
		return false;
	errno = 0;
	v = strtoull(eq + 1, &end, 10);
	if (*end || errno)
		return false;
	if (!strncmp(word, "seed=", 5))
		n->seed = v;
	else if (v > UINT32_MAX)
		return false;
	else if (!strncmp(word, "jitter=", 7))
		n->jitter_pct = v;
	else if (!strncmp(word, "stall-every=", 12))
		n->stall_every = v;
	else if (!strncmp(word, "stall-us=", 9))
		n->stall_us = v;
	else
		return false;
	return true;
}

int emu_noise_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_NOISE");
	struct zns_emu_noise n = { 0 };
	char buf[256], *save = NULL;

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
	return zns_fail(err, -EINVAL, "ZNS_EMU_NOISE=\"%.64s\": should be like \"jitter=5,stall-every=1000,stall-us=3000,seed=1\"",
			env);
}
