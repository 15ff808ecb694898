/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The threads that serve processes. One of them reads events (events.c). The others answer the
 * faults that it puts into the queue. If it reads a fault while the queue is empty, it lets another
 * thread read on, and answers the fault itself: waking a thread on a sleeping CPU would take half
 * as long as a read from flash.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "../policy/hiber.h"

static void answer(struct fault *f, uint8_t *buf)
{
	uint64_t base = f->addr / UNIT * UNIT;

	if (f->kind == FETCH_RECORD) { /* this request is not about a single process */
		active_fetch(f->p, buf);
	} else if (f->p->gone) {
		return;
	} else if (f->kind == FETCH_GUARDED) {
		guards_fetch(f->p, base, buf);
	} else if (f->kind >= FETCH) {
		ahead_fetch(f->p, base, buf, f->kind);
	} else if (fault_answer(f, buf)) {
		hiber_touched(f->p, base);
		ahead_fault(f->p, base);
	}
}

static void *server(void *arg)
{
	struct zns_mem *m = arg;
	uint8_t *buf = mmap(NULL, UNIT, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	enum task task;
	struct fault f;

	if (buf == MAP_FAILED)
		return NULL;
	while ((task = queue_next(&m->queue, &f)) != ENDED) {
		if (task == READ_EVENTS && !reader_lead(m, &f))
			continue; /* the context ends, and events are not read any more */
		answer(&f, buf);
		evictor_rouse(m);
		queue_answered(&m->queue, &f);
		proc_put(f.p);
	}
	munmap(buf, UNIT);
	return NULL;
}

int servers_start(struct zns_mem *m, unsigned int nr)
{
	int ret = 0;

	while (!ret && m->nr_servers < nr) {
		ret = -pthread_create(&m->server[m->nr_servers], NULL, server, m);
		if (!ret)
			m->nr_servers++;
	}
	return ret;
}

void servers_end(struct zns_mem *m)
{
	uint64_t one = 1;

	pthread_mutex_lock(&m->queue.lock);
	m->queue.end = true;
	pthread_cond_broadcast(&m->queue.more);
	pthread_mutex_unlock(&m->queue.lock);
	if (write(m->wake, &one, sizeof(one)) != sizeof(one))
		return; /* cannot happen: the eventfd was just read */
	while (m->nr_servers)
		pthread_join(m->server[--m->nr_servers], NULL);
}
