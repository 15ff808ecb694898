/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_LOCK_H
#define ZNS_WRITE_LOCK_H
/*
 * The one lock of a writer, and how its use is checked. clang's thread-safety analysis (`make
 * lint`) proves that GUARDED members are only accessed with the lock held, and that these
 * attributes of functions are respected:
 *
 *   NEEDS_LOCK   The caller holds the lock, before and after the call. The function may drop it
 *                meanwhile; then its comment says so.
 *   NO_LOCK      The caller must not hold the lock.
 *   UNSHARED     (on a definition) The writer is being created or freed, so no other thread has it.
 *
 * gcc ignores all of this. The analysis does not distinguish the locks of two writers, but no code
 * uses two.
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
/* stands for the lock in the analysis; it has no definition and is used by no code */
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
/* Waits for @c with the lock dropped. Like pthread_cond_wait(3), it may return early. */
void writer_sleep(struct zns_writer *w, pthread_cond_t *c) NEEDS_LOCK;

#endif
