/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decides whether a context is idle. Timers alone are no activity: an idle Redis wakes up ten times
 * a second and uses some thousandths of a core. More CPU time than that is activity, and so is
 * memory that is read back from zones.
 */
#include <fcntl.h>
#include <string.h>

#include "hiber.h"

#define LOOK_NS 1000000000ULL
#define TRICKLE_PCT 2 /* percent of one core */
#define TRICKLE_UNITS 16 /* units read back per second */

void activity_seen(struct zns_mem *m)
{
	m->sh->hiber.active_ns = zns_now_ns();
}

uint64_t activity_idle_ms(const struct zns_mem *m)
{
	int64_t ns = zns_now_ns() - m->sh->hiber.active_ns;

	return ns > 0 ? (uint64_t)ns / 1000000 : 0;
}

/* CPU time of all threads of a process, in ticks; 0: unknown. */
static uint64_t cpu_ticks(const struct proc *p)
{
	cleanup_free uint8_t *text = NULL;
	unsigned long long user = 0, kernel = 0;
	char path[40], *at;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", p->pid);
	if (!p->pid || zns_read_file(AT_FDCWD, path, 4096, &text, &len))
		return 0;
	/* Skip the name, which the program chooses and which may contain ')'. */
	at = strrchr((char *)text, ')');
	if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
			  &kernel) != 2)
		return 0;
	return user + kernel + 1;
}

void activity_look(struct zns_mem *m)
{
	uint64_t now = zns_mono_ns(), past = now - m->hiber.looked_ns, ticks = 0, units;
	struct proc *list[PROCS_MAX];
	bool new = !m->hiber.looked_ns;
	unsigned int nr;

	if (past < LOOK_NS)
		return;
	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t t = cpu_ticks(list[i]), last = list[i]->cpu_ticks;

		if (t && !last)
			new = true;
		else if (t > last)
			ticks += t - last;
		list[i]->cpu_ticks = t;
		proc_put(list[i]);
	}
	units = m->sh->read_units - m->hiber.read_units;
	m->hiber.read_units = m->sh->read_units;
	m->hiber.looked_ns = now;
	if (new || units * 1000000000ULL > TRICKLE_UNITS * past ||
	    ticks *(uint64_t)(1000000000 / sysconf(_SC_CLK_TCK)) > past / 100 * TRICKLE_PCT)
		activity_seen(m);
}
