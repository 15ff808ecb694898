/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Applies the environment when a device is opened or a broker started: see controls.h. */
#include <stdlib.h>
#include <string.h>

#include "../../zns/client/spawn.h"
#include "control.h"
#include "zns/track_control.h"

static int clock_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_CLOCK");

	if (!env || !*env || !strcmp(env, "wall") || !emu_timing_active(e))
		return 0;
	if (strcmp(env, "thread"))
		return zns_fail(err, -EINVAL,
				"ZNS_EMU_CLOCK=\"%.64s\": should be \"wall\" or \"thread\"", env);
	return zns_emu_set_clock(&e->dev, ZNS_EMU_CLOCK_THREAD, err);
}

static int flush_from_env(struct emu *e, struct zns_err *err)
{
	const char *env = secure_getenv("ZNS_EMU_FLUSH");

	if (env && *env && strcmp(env, "zones") && strcmp(env, "device"))
		return zns_fail(err, -EINVAL,
				"ZNS_EMU_FLUSH=\"%.64s\": should be \"zones\" or \"device\"", env);
	e->control->flush_all = env && !strcmp(env, "device");
	return 0;
}

int emu_control_open(struct emu *e, struct zns_err *err)
{
	const char *data = secure_getenv("ZNS_EMU_DATA");
	int rc;

	e->control = calloc(1, sizeof(*e->control));
	if (!e->control)
		return zns_fail(err, -ENOMEM, "out of memory");
	e->control->no_data = data && !strcmp(data, "none");
	rc = control_noise_from_env(e, err);
	if (!rc)
		rc = clock_from_env(e, err);
	if (!rc)
		rc = flush_from_env(e, err);
	if (!rc)
		rc = control_lies_from_env(e, err);
	return rc ? rc : control_faults_from_env(e, err);
}

void emu_control_close(struct emu *e)
{
	free(e->control);
}

/* The tables are read before the control exists. */
bool emu_stores_nothing(const struct emu *e)
{
	return e->control && e->control->no_data;
}

bool emu_flushes_all(const struct emu *e)
{
	return e->control->flush_all;
}

bool nvme_wants_ioctl(void)
{
	const char *env = secure_getenv("ZNS_NVME_IOCTL");

	return env && !strcmp(env, "1");
}

/* Is it one of the words in ZNS_TRACK_BREAK? */
bool control_track_word(const char *word)
{
	const char *s = secure_getenv("ZNS_TRACK_BREAK");

	for (size_t n; s && *s; s += n + (s[n] == ',')) {
		n = strcspn(s, ",");
		if (n == strlen(word) && !memcmp(s, word, n))
			return true;
	}
	return false;
}

bool track_breaks(enum track_rule rule)
{
	static const char *const word[TRACK_RULES] = {
		[TRACK_BARRIER] = "barrier", [TRACK_ASYNC] = "aio",   [TRACK_SHARED] = "shared",
		[TRACK_VECTOR] = "vector",   [TRACK_HOLES] = "holes",
	};

	return control_track_word(word[rule]);
}

bool zns_spawn_keeps_more(const char *name, size_t len)
{
	const char *more = secure_getenv("ZNSD_KEEP_ENV");

	if (len == strlen("ZNS_CLOCK") && !memcmp(name, "ZNS_CLOCK", len))
		return true;
	while (more && *more) {
		size_t n = strcspn(more, ",");

		if (n == len && !memcmp(name, more, n))
			return true;
		more += n + (more[n] == ',');
	}
	return false;
}

unsigned zns_hello_limit_ms(void)
{
	const char *ms = secure_getenv("ZNS_BROKER_HELLO_MS");

	return ms && *ms ? (unsigned)strtoul(ms, NULL, 10) : ZNS_HELLO_MS;
}
