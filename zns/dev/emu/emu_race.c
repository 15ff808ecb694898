/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * zns_dev_race in model time. The client with the earliest next command runs first. So the
 * calendars see the commands in the order in which a drive would get them if all clients worked at
 * once. The data are really moved, but how long that takes does not matter.
 */
#include <stdlib.h>

#include "emu_priv.h"
#include "../race_priv.h"

struct turn {
	uint64_t due_ns;
	uint32_t asked;
};

static int issue(struct emu *e, const struct zns_race *r, struct turn *t, uint64_t start,
		 struct zns_err *err)
{
	uint64_t off = r->off + (uint64_t)t->asked * (r->step ? r->step : r->len), at, done;
	int ret;

	if (r->write)
		ret = emu_write_at(e, r->zone, off, r->buf, r->len, &at, t->due_ns, &done, err);
	else
		ret = emu_read_at(e, r->zone, off, r->buf, r->len, true, t->due_ns, &done, err);
	if (!ret && !done && r->len)
		ret = zns_fail(err, -EIO, "%s: its timing model cannot be used", e->dev.path);
	if (ret)
		return ret;
	t->due_ns = zns_max(done, t->due_ns);
	r->done_ns[t->asked++] = t->due_ns - start;
	return 0;
}

int emu_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	struct emu *e = emu_of(d);
	cleanup_free struct turn *t = NULL;
	uint64_t start, end;
	int ret = 0;

	if (!emu_timing_active(e))
		return zns_race_threads(d, r, nr, err);
	t = calloc(nr, sizeof(*t));
	if (!t)
		return zns_fail(err, -ENOMEM, "no memory for %u clients", nr);
	start = end = emu_timing_issue(e);
	for (uint32_t i = 0; i < nr; i++)
		t[i].due_ns = start;
	while (!ret) {
		uint32_t first = nr;

		for (uint32_t i = 0; i < nr; i++)
			if (t[i].asked < r[i].count &&
			    (first == nr || t[i].due_ns < t[first].due_ns))
				first = i;
		if (first == nr)
			break;
		ret = issue(e, &r[first], &t[first], start, err);
		end = zns_max(end, t[first].due_ns);
	}
	emu_timing_wait(e, end);
	return ret;
}

uint64_t emu_now_ns(struct zns_dev *d)
{
	struct emu *e = emu_of(d);

	return emu_timing_active(e) ? emu_timing_issue(e) : zns_mono_ns();
}
