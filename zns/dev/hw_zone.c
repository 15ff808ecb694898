/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Common to real devices: reset, open, close and finish of zones. */
#include <stdlib.h>
#include <string.h>

#include "hw_priv.h"

static const char *const action_name[] = {
	[HW_RESET] = "reset",
	[HW_OPEN] = "opening",
	[HW_CLOSE] = "closing",
	[HW_FINISH] = "finishing",
};

/* Called when the device refused a command: finds the reason in the zone's state. */
static int explain(struct hw *h, enum hw_action what, uint32_t zone, const struct zns_err *why,
		   struct zns_err *err)
{
	struct zns_zone z;
	int ret = hw_plain_failure(h, zone, why, err);

	if (ret)
		return ret;
	ret = hw_look(h, zone, &z, NULL);
	if (ret)
		return zns_fail(err, -EIO,
				"%s zone %u: %s; nor can its zones be reported: is %s still there?",
				action_name[what], zone, why->msg, h->dev.path);
	if (what != HW_RESET || z.state != ZNS_ZONE_FULL)
		ret = hw_refuses(&z, err);
	if (ret)
		return ret;
	if (what == HW_CLOSE && z.state == ZNS_ZONE_EMPTY)
		return zns_fail(err, -EIO, "zone %u is empty: only an open zone can be closed",
				zone);
	return zns_fail(err, -EIO, "%s zone %u (%s): %s", action_name[what], zone,
			zns_zone_state_name(z.state), why->msg);
}

static int manage(struct hw *h, enum hw_action what, uint32_t zone, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;

	hw_forget(h, zone);
	return h->raw->manage(h, what, zone, 1, &why) ? explain(h, what, zone, &why, err) : 0;
}

static int check(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	int ret = hw_check_writable(hw_of(d), err);

	return ret ? ret : hw_check_zone(hw_of(d), zone, err);
}

int hw_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	int ret = check(d, zone, err);

	return ret ? ret : manage(hw_of(d), HW_OPEN, zone, err);
}

/* Some devices keep a zone active that was opened and closed without a write. Reset it, so that it
 * is empty, as zns/dev.h promises. */
int hw_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct hw *h = hw_of(d);
	struct zns_zone z;
	int ret = check(d, zone, err);

	if (!ret)
		ret = manage(h, HW_CLOSE, zone, err);
	if (!ret)
		ret = hw_look(h, zone, &z, err);
	if (!ret && z.state == ZNS_ZONE_CLOSED && !z.wp)
		ret = manage(h, HW_RESET, zone, err);
	return ret;
}

int hw_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct hw *h = hw_of(d);
	struct zns_zone z;
	int ret = check(d, zone, err);

	if (ret)
		return ret;
	ret = hw_look(h, zone, &z, err);
	if (ret || z.state == ZNS_ZONE_FULL)
		return ret;
	ret = hw_refuses(&z, err);
	return ret ? ret : manage(h, HW_FINISH, zone, err);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* How many zones at the start of @sorted are consecutive. */
static uint32_t run_of(const uint32_t *sorted, uint32_t nr)
{
	uint32_t n = 1;

	while (n < nr && sorted[n] == sorted[n - 1] + 1)
		n++;
	return n;
}

/* Finds the zone of the range whose reset failed. */
static int explain_reset(struct hw *h, uint32_t first, uint32_t nr, const struct zns_err *why,
			 struct zns_err *err)
{
	struct zns_zone z;

	for (uint32_t i = 0; i < nr; i++)
		if (hw_look(h, first + i, &z, NULL) || z.state != ZNS_ZONE_EMPTY)
			return explain(h, HW_RESET, first + i, why, err);
	return 0; /* all zones are empty, as the caller wanted */
}

static int reset_sorted(struct hw *h, const uint32_t *sorted, uint32_t nr, struct zns_err *err)
{
	cleanup_free struct zns_zone *z = malloc(nr * sizeof(*z));
	int ret;

	if (!z)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	/* Check all zones before the first one is changed, as far as their states are known. */
	for (uint32_t i = 0, n; i < nr; i += n) {
		n = run_of(sorted + i, nr - i);
		ret = hw_report(&h->dev, sorted[i], n, z + i, err);
		if (ret)
			return ret;
	}
	for (uint32_t i = 0; i < nr; i++) {
		ret = z[i].state == ZNS_ZONE_FULL && !z[i].conventional ? 0 :
									  hw_refuses(&z[i], err);
		if (ret)
			return ret;
	}
	for (uint32_t i = 0, n; i < nr; i += n) {
		struct zns_err why = ZNS_ERR_INIT;

		for (n = 0; i + n < nr && sorted[i + n] == sorted[i] + n &&
			    z[i + n].state != ZNS_ZONE_EMPTY;
		     n++)
			hw_forget(h, sorted[i + n]);
		if (n && h->raw->manage(h, HW_RESET, sorted[i], n, &why)) {
			ret = explain_reset(h, sorted[i], n, &why, err);
			if (ret)
				return ret;
		}
		if (!n)
			n = 1;
	}
	return 0;
}

int hw_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct hw *h = hw_of(d);
	cleanup_free uint32_t *sorted = NULL;
	uint32_t n = 0;
	int ret = hw_check_writable(h, err);

	if (ret || !nr)
		return ret;
	for (uint32_t i = 0; i < nr; i++) {
		ret = hw_check_zone(h, zones[i], err);
		if (ret)
			return ret;
	}
	sorted = malloc(nr * sizeof(*sorted));
	if (!sorted)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", nr);
	memcpy(sorted, zones, nr * sizeof(*sorted));
	qsort(sorted, nr, sizeof(*sorted), by_number);
	for (uint32_t i = 0; i < nr; i++)
		if (!n || sorted[n - 1] != sorted[i])
			sorted[n++] = sorted[i];
	return reset_sorted(h, sorted, n, err);
}
