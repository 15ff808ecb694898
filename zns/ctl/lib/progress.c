/* SPDX-License-Identifier: GPL-2.0-only */
/* A progress line on a terminal, shown after one second: amount, rate, time left. */
#include <string.h>
#include <unistd.h>
#include "ctl.h"

#define FIRST_NS 1000000000ull
#define EVERY_NS 200000000ull

void ctl_progress_start(struct ctl_progress *p, const char *what, uint64_t total)
{
	*p = (struct ctl_progress){ .what = what,
				    .total = total,
				    .start_ns = zns_mono_ns(),
				    .tty = isatty(STDERR_FILENO) };
	pthread_mutex_init(&p->lock, NULL);
}

static void show(struct ctl_progress *p, uint64_t now)
{
	char done[16], total[16], left[32] = "";
	double s = (double)(now - p->start_ns) / 1e9, rate = (double)p->done / s;

	if (!p->total) {
		fprintf(stderr, "\r%s: %s, %.0f MiB/s\033[K", p->what,
			zns_format_size(p->done, done, sizeof(done)), rate / MIB(1));
		fflush(stderr);
		p->shown = true;
		return;
	}
	if (p->total > p->done && rate > 0)
		snprintf(left, sizeof(left), ", %.0f s left",
			 (double)(p->total - p->done) / rate + 0.5);
	fprintf(stderr, "\r%s: %s of %s (%.0f %%), %.0f MiB/s%s\033[K", p->what,
		zns_format_size(p->done, done, sizeof(done)),
		zns_format_size(p->total, total, sizeof(total)),
		p->total ? 100.0 * p->done / p->total : 100.0, rate / MIB(1), left);
	fflush(stderr);
	p->shown = true;
}

void ctl_progress_add(struct ctl_progress *p, uint64_t bytes)
{
	uint64_t now = zns_mono_ns();

	pthread_mutex_lock(&p->lock);
	p->done += bytes;
	if (p->tty && now - p->start_ns >= FIRST_NS && now - p->last_ns >= EVERY_NS) {
		p->last_ns = now;
		show(p, now);
	}
	pthread_mutex_unlock(&p->lock);
}

double ctl_progress_end(struct ctl_progress *p)
{
	double s = (double)(zns_mono_ns() - p->start_ns) / 1e9;

	if (p->shown)
		fprintf(stderr, "\r\033[K");
	pthread_mutex_destroy(&p->lock);
	return s;
}
