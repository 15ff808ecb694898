/* SPDX-License-Identifier: GPL-2.0-only */
/* Which zones share a die: runs znsctl probe to find the map, or to check the stored one. */
#include <string.h>

#include "selftest.h"
#include "zns/emu.h"

#define ANSWER 65536
#define SAMPLE_MAX 4096u /* most zones that are tested; all zones of a smaller drive */

static struct json_object *get(struct json_object *j, const char *name)
{
	struct json_object *v = NULL;

	json_object_object_get_ex(j, name, &v);
	return v;
}

static int number(struct json_object *j, const char *name)
{
	return json_object_get_int(get(j, name));
}

/* Is this an emulator without a timing model? Then the map cannot be found. */
static bool without_time(const char *spec)
{
	struct zns_emu_params p = { 0 };
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_dev *d;
	bool none;

	if (zns_dev_open(spec, ZNS_DEV_RDONLY, &d, &err))
		return false;
	none = !zns_emu_info(d, &p, NULL) && !p.timing;
	zns_dev_close(d);
	return none;
}

/*
 * Runs a probe. NULL: it failed, and the report has a line about it. If the probe was disturbed,
 * that is not held against the drive.
 */
static struct json_object *ask(struct selftest *s, const char *what, bool verify, int *code,
			       char why[ST_WHY])
{
	char text[ANSWER], sample[32];
	char *argv[] = { (char *)"znsctl",
			 (char *)"probe",
			 (char *)s->spec,
			 (char *)"--json",
			 verify ? (char *)"--verify" : NULL,
			 verify ? sample : NULL,
			 NULL };
	struct json_object *j;

	snprintf(sample, sizeof(sample), "--sample=%u", zns_min(s->geo.nr_zones, SAMPLE_MAX));
	*code = st_run("znsctl", argv, text, sizeof(text), why);
	j = *code >= 0 ? json_tokener_parse(text) : NULL;
	if (j && !json_object_get_boolean(get(j, "refused")))
		return j;
	st_say(s, j ? ST_DOUBT : ST_FAILED, what, "%s",
	       *why ? why : "znsctl probe gives no answer");
	json_object_put(j);
	return NULL;
}

static void find(struct selftest *s)
{
	char why[ST_WHY];
	int code;
	struct json_object *j = ask(s, "probe", false, &code, why);

	if (!j)
		return;
	if (code)
		st_say(s, ST_FAILED, "probe", "%s", why);
	else
		st_say(s, ST_OK, "probe",
		       "%d groups of zones that share a die, confidence %.4f; one zone %d MiB/s written, %d read; %d zones unknown, %d failed",
		       number(j, "groups"), json_object_get_double(get(j, "confidence")),
		       number(j, "zone_write_mibps"), number(j, "zone_read_mibps"),
		       (int)json_object_array_length(get(j, "unknown_zones")),
		       number(j, "failed_zones"));
	json_object_put(j);
}

static const char *first_moved(struct json_object *j, char out[32])
{
	struct json_object *moved = get(j, "moved");

	*out = '\0';
	if (moved && json_object_array_length(moved))
		snprintf(out, 32, " (zone %d)",
			 json_object_get_int(json_object_array_get_idx(moved, 0)));
	return out;
}

/*
 * A busy host may delay a sample, so a failed check is repeated with another sample. A wrong map
 * fails both.
 */
static void verify(struct selftest *s)
{
	char why[ST_WHY], first[32];
	int code;
	struct json_object *j = ask(s, "map", true, &code, why);
	bool again = j && code;

	if (again) {
		json_object_put(j);
		j = ask(s, "map", true, &code, why);
	}
	if (!j)
		return;
	if (!code)
		st_say(s, ST_OK, "map", "%d groups and %d more zones are as they are stored%s",
		       number(j, "groups_checked"), number(j, "zones_checked"),
		       again ? "; a sample before this one said otherwise, as on a busy host" : "");
	else
		st_say(s, ST_FAILED, "map",
		       "%d of %d zones tried are not on the die that is stored%s, %d pairs of groups are on one die, %d pairs of dies have other channels%s%s",
		       number(j, "zones_moved"), number(j, "zones_checked"), first_moved(j, first),
		       number(j, "groups_joined"), number(j, "channels_moved"),
		       json_object_get_boolean(get(j, "domain_changed")) ?
			       ", zones are independent where they were not, or the other way round" :
			       "",
		       json_object_get_boolean(get(j, "rates_changed")) ? ", rates are others" :
									  "");
	json_object_put(j);
}

void st_probe(struct selftest *s, bool find_out)
{
	if (without_time(s->spec)) {
		st_say(s, ST_NOT_RUN, "map", "this emulator has no timing model");
		return;
	}
	if (find_out)
		find(s);
	verify(s);
}
