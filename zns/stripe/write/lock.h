/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_LOCK_H
#define ZNS_WRITE_LOCK_H
/*
 * The one lock of a writer, and how its rules are checked. clang's thread-safety analysis (`make
 * lint`) proves that GUARDED members are touched only with the lock, and that functions get what
 * they ask for:
 *
 *   NEEDS_LOCK   the caller holds the lock, before and after. A function may drop it meanwhile; its
 * comment says so. NO_LOCK      the caller must not hold it. UNSHARED     (on a definition) the
 * writer is being made or freed, nobody else has it.
 *
 * gcc knows nothing of this. The analysis tells locks of two writers from each other as little: no
 * code has two.
 */
#include <pthread.h>

#ifdef __clang__
#define ZNS_TSA(x) __attribute__((x))
#else
#define ZNS_TSA(x)
#endif

struct ZNS_TSA(capability("mutex")) writer_lock_role {
	int unused;
};
/* a name for the analysis; it has no definition, and no code uses it */
extern struct writer_lock_role writer_held;

#define GUARDED ZNS_TSA(guarded_by(writer_held))
#define NEEDS_LOCK ZNS_TSA(requires_capability(writer_held))
#define NO_LOCK ZNS_TSA(locks_excluded(writer_held))
#define TAKES_LOCK ZNS_TSA(acquire_capability(writer_held))
#define GIVES_LOCK ZNS_TSA(release_capability(writer_held))
#define UNSHARED ZNS_TSA(no_thread_safety_analysis)

struct zns_writer;

void writer_lock(struct zns_writer *w) TAKES_LOCK;
void writer_unlock(struct zns_writer *w) GIVES_LOCK;
/* Waits for @c with the lock dropped. As pthread_cond_wait(3), it may return early. */
void writer_sleep(struct zns_writer *w, pthread_cond_t *c) NEEDS_LOCK;

#endif
