/* SPDX-License-Identifier: GPL-2.0-only */
/* Asks all memory contexts for their status. */
#include "memory.h"
#include "zns/grow.h"

void memory_look_free(struct memory_look *l)
{
	while (l->nr)
		zns_pb__memory_answer__free_unpacked(l->a[--l->nr], NULL);
	free(l->a);
	*l = (struct memory_look){ 0 };
}

int memory_look_take(struct memory_look *l, struct zns_err *err)
{
	char **names;
	size_t nr;
	int ret = memory_names(&names, &nr, err);

	*l = (struct memory_look){ 0 };
	if (ret)
		return ret;
	for (size_t i = 0; i < nr && !ret; i++) {
		struct zns_err no = ZNS_ERR_INIT;
		ZnsPb__MemoryAnswer *a;

		if (memory_status(names[i], &a, &no))
			continue;
		ret = zns_grow(l->a, l->nr, l->max);
		if (ret)
			zns_pb__memory_answer__free_unpacked(a, NULL);
		else
			l->a[l->nr++] = a;
	}
	l->ns = zns_mono_ns();
	memory_names_free(names, nr);
	if (ret)
		memory_look_free(l);
	return ret ? zns_fail_sys(err, ret, "cannot collect the status of memory contexts") : 0;
}

uint64_t memory_units_read(const ZnsPb__MemoryStatus *s)
{
	uint64_t all = s->read_units + s->prefetched;

	return all - zns_min(all, s->spare_units);
}

uint64_t memory_units_written(const ZnsPb__MemoryStatus *s)
{
	return s->evicted_units - zns_min(s->evicted_units, s->clean_units) + s->moved_units;
}
