/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks that whoever unlocks a mutex, or waits with it, has locked it. A forgotten lock seldom
 * shows in a program's results, so unit programs end at that call. The linker wraps both calls
 * (programs.mk).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);

static void must_have(const pthread_mutex_t *m)
{
	static __thread pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	int self;

	/* uses the C library's id of the thread, which differs from the kernel's after clone() */
	pthread_mutex_lock(&own);
	self = own.__data.__owner;
	__real_pthread_mutex_unlock(&own);
	if (m->__data.__owner == self)
		return;
	fprintf(stderr, "a mutex is unlocked or waited with by a thread that has not locked it\n");
	abort();
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	must_have(m);
	return __real_pthread_mutex_unlock(m);
}

/* Virtual time has its own lock. */
__attribute__((weak)) int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	must_have(m);
	return __real_pthread_cond_wait(c, m);
}
