/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests threads, processes, several handles, and two device nodes of one device. */
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

#define THREADS 8

struct job {
	pthread_t thread;
	uint32_t zone, count, tag;
	bool read;
	int rc;
	struct zns_err err;
};

/* Uses odd sizes, so that the threads do not run in step. */
static void *work(void *arg)
{
	struct job *j = arg;
	size_t len = zns_min((uint64_t)(j->tag % 5 + 1) * t.block, (uint64_t)t.max_io);
	uint8_t *buf = aligned_alloc(65536, zns_align_up(len, 65536));

	j->rc = buf ? 0 : -ENOMEM;
	for (uint32_t i = 0; !j->rc && i < j->count; i++) {
		uint64_t off = (uint64_t)i * len;

		pattern(buf, j->zone, off, len, j->tag);
		if (!j->read) {
			j->rc = zns_dev_write(t.d, j->zone, off, buf, len, &j->err);
			continue;
		}
		j->rc = zns_dev_read(t.d, j->zone, off, buf, len, &j->err);
		if (!j->rc && !is_pattern(buf, j->zone, off, len, j->tag))
			j->rc = zns_fail(&j->err, -EBADMSG, "zone %u has other data at %llu",
					 j->zone, (unsigned long long)off);
	}
	free(buf);
	return NULL;
}

static void run_jobs(struct job *j, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		TRUE(!pthread_create(&j[i].thread, NULL, work, &j[i]));
	for (uint32_t i = 0; i < nr; i++)
		pthread_join(j[i].thread, NULL);
	for (uint32_t i = 0; i < nr; i++)
		if (j[i].rc)
			conform_fail(__FILE__, __LINE__, "thread %u: %d %s", i, j[i].rc,
				     j[i].err.msg);
}

static uint32_t at_once(void)
{
	uint32_t n = zns_min(t.nr, (uint32_t)THREADS);

	if (t.d->geo.max_open)
		n = zns_min(n, t.d->geo.max_open);
	return n;
}

static void parallel_writers(void)
{
	uint32_t n = at_once();
	struct job j[2 * THREADS] = { 0 };

	for (uint32_t i = 0; i < n; i++)
		j[i] = (struct job){ .zone = t.zone[i], .count = 64, .tag = i + 1 };
	run_jobs(j, n);
	/* Then each process reads what another one has written; two read each zone. */
	for (uint32_t i = 0; i < 2 * n; i++)
		j[i] = (struct job){
			.zone = t.zone[i % n], .count = 64, .tag = i % n + 1, .read = true
		};
	run_jobs(j, 2 * n);
	for (uint32_t i = 0; i < n; i++)
		SAME(zone_of(t.zone[i]).wp,
		     64 * zns_min((uint64_t)((i + 1) % 5 + 1) * t.block, (uint64_t)t.max_io));
}

static void read_beside_write(void)
{
	uint32_t n = zns_max(1u, at_once() / 2);
	struct job j[THREADS] = { 0 };

	if (t.nr < 2 * n)
		conform_skip("too few zones");
	for (uint32_t i = 0; i < n; i++)
		j[i] = (struct job){ .zone = t.zone[i], .count = 48, .tag = i + 1 };
	run_jobs(j, n);
	for (uint32_t i = 0; i < n; i++) /* these commands must leave no zone open */
		OK(zns_dev_close_zone(t.d, t.zone[i], E));
	if (t.d->geo.max_active && 2 * n > t.d->geo.max_active)
		conform_skip("too few active zones");
	for (uint32_t i = 0; i < n; i++) {
		j[i].read = true;
		j[n + i] = (struct job){ .zone = t.zone[n + i], .count = 48, .tag = n + i + 1 };
	}
	run_jobs(j, 2 * n);
}

/* ---- another process ---- */

enum { REPORT, WRITE, APPEND, READ, RESET, OPEN, CLOSE, FINISH, FLUSH };

struct request {
	int what;
	uint32_t zone, blocks, tag;
	uint64_t off;
};

struct answer {
	int rc;
	uint64_t off;
	struct zns_zone z;
	struct zns_err err;
};

static int serve(struct zns_dev *d, uint8_t *buf, const struct request *q, struct answer *a)
{
	size_t len = (size_t)q->blocks * d->geo.block_size;

	switch (q->what) {
	case REPORT:
		return zns_dev_report(d, q->zone, 1, &a->z, &a->err);
	case WRITE:
		pattern(buf, q->zone, q->off, len, q->tag);
		return zns_dev_write(d, q->zone, q->off, buf, len, &a->err);
	case APPEND:
		pattern(buf, q->zone, 0, len, q->tag);
		return zns_dev_append(d, q->zone, buf, len, &a->off, &a->err);
	case READ:
		a->rc = zns_dev_read(d, q->zone, q->off, buf, len, &a->err);
		return a->rc ? a->rc : is_pattern(buf, q->zone, q->off, len, q->tag) ? 0 : -EBADMSG;
	case RESET:
		return zns_dev_reset(d, &q->zone, 1, &a->err);
	case OPEN:
		return zns_dev_open_zone(d, q->zone, &a->err);
	case CLOSE:
		return zns_dev_close_zone(d, q->zone, &a->err);
	case FINISH:
		return zns_dev_finish(d, q->zone, &a->err);
	default:
		return zns_dev_flush(d, &a->err);
	}
}

struct peer {
	pid_t pid;
	int fd;
};

static void remember(pid_t old, pid_t new)
{
	for (unsigned int i = 0; i < CONFORM_PEERS; i++)
		if (t.peer[i] == old) {
			t.peer[i] = new;
			return;
		}
}

/* Starts a child process that opens the device itself and executes requests. */
static struct peer peer_start(const char *spec)
{
	struct peer p;
	int fd[2];

	TRUE(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd));
	p.pid = fork();
	TRUE(p.pid >= 0);
	if (!p.pid) {
		uint8_t *buf = aligned_alloc(65536, MIB(1));
		struct zns_dev *d;
		struct request q;
		struct answer a;

		close(fd[0]);
		memset(&a, 0, sizeof(a));
		a.rc = zns_dev_open(spec, 0, &d, &a.err);
		if (write(fd[1], &a, sizeof(a)) != sizeof(a) || a.rc)
			_exit(1);
		while (read(fd[1], &q, sizeof(q)) == sizeof(q)) {
			memset(&a, 0, sizeof(a));
			a.rc = serve(d, buf, &q, &a);
			if (write(fd[1], &a, sizeof(a)) != sizeof(a))
				break;
		}
		zns_dev_close(d);
		_exit(0);
	}
	close(fd[1]);
	p.fd = fd[0];
	remember(0, p.pid);
	struct answer a = { .rc = -EPIPE };

	if (read(p.fd, &a, sizeof(a)) != sizeof(a) || a.rc)
		conform_fail(__FILE__, __LINE__, "another process cannot open %s: %d %s", spec,
			     a.rc, a.err.msg);
	return p;
}

static void peer_send(struct peer *p, struct request q)
{
	TRUE(write(p->fd, &q, sizeof(q)) == sizeof(q));
}

static struct answer peer_wait(struct peer *p)
{
	struct answer a = { .rc = -EPIPE };

	TRUE(read(p->fd, &a, sizeof(a)) == sizeof(a));
	return a;
}

static struct answer peer_ask(struct peer *p, struct request q)
{
	peer_send(p, q);
	return peer_wait(p);
}

static void peer_end(struct peer *p, int sig)
{
	int status;

	if (sig)
		kill(p->pid, sig);
	/* shutdown() and not close(): later children inherit the descriptor too */
	shutdown(p->fd, SHUT_RDWR);
	close(p->fd);
	TRUE(waitpid(p->pid, &status, 0) == p->pid);
	remember(p->pid, 0);
	TRUE(sig ? WIFSIGNALED(status) : WIFEXITED(status) && !WEXITSTATUS(status));
}

#define ASK(p, w, z, ...) peer_ask(p, (struct request){ .what = w, .zone = z, __VA_ARGS__ })
#define ASK_OK(p, w, z, ...)                                                             \
	do {                                                                             \
		struct answer a_ = ASK(p, w, z, __VA_ARGS__);                            \
		if (a_.rc)                                                               \
			conform_fail(__FILE__, __LINE__,                                 \
				     "the other process: " #w " of " #z " " #__VA_ARGS__ \
				     ": %d %s",                                          \
				     a_.rc, a_.err.msg);                                 \
	} while (0)

/*
 * Checks a write at an outdated write pointer. A device that takes an offset refuses it. NVMe
 * passthrough appends, so the data are written at the end of the written part; this must be noticed
 * and reported as an error too.
 */
static void stale(int rc, const char *msg, uint32_t z, uint64_t *at)
{
	TRUE(rc == -EIO);
	if (strstr(msg, "another program writes to this zone"))
		*at += t.block;
	else if (!strstr(msg, "not at its write pointer"))
		conform_fail(__FILE__, __LINE__, "it says: %s", msg);
	SAME(zone_of(z).wp, *at);
}

/* Both processes must see what the other has written, whichever of them writes. */
static void see_each_other(struct peer *p)
{
	uint32_t z = t.zone[0], b = t.block;
	struct answer a;
	uint64_t at;
	int rc;

	put(z, 0, 2 * b);
	a = ASK(p, REPORT, z);
	SAME(a.rc, 0);
	SAME(a.z.wp, 2 * b);
	TRUE(zns_zone_is_open(a.z.state));
	ASK_OK(p, READ, z, .blocks = 2);
	ASK_OK(p, WRITE, z, .blocks = 3, .off = 2 * b);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 5 * b);
	check(z, 2 * b, 3 * b);
	put(z, 5 * b, b);
	ASK_OK(p, WRITE, z, .blocks = 1, .off = 6 * b);
	at = 7 * b;
	/* where this process expects the write pointer */
	rc = zns_dev_write(t.d, z, 6 * b, t.buf, b, E);
	stale(rc, conform_err.msg, z, &at);
	put(z, at, b);
	/* and where the other process expects it */
	a = ASK(p, WRITE, z, .blocks = 1, .off = 7 * b);
	at += b;
	stale(a.rc, a.err.msg, z, &at);
	ASK_OK(p, CLOSE, z);
	ZONE(z, ZNS_ZONE_CLOSED, at);
	put(z, at, b);
	check(z, 0, 7 * b);
	check(z, at, b);
	ASK_OK(p, FINISH, z);
	FAILS(zns_dev_write(t.d, z, at + b, t.buf, b, E), ENOSPC, "full");
	check(z, 0, 7 * b);
	ASK_OK(p, RESET, z);
	ZONE(z, ZNS_ZONE_EMPTY, 0);
	FAILS(zns_dev_read(t.d, z, 0, t.buf, b, E), ENODATA, "write pointer 0");
	put(z, 0, b);
	ASK_OK(p, READ, z, .blocks = 1);
	/*
	 * The other process resets the zone, and writes up to the offset that this process expects.
	 */
	ASK_OK(p, RESET, z);
	ASK_OK(p, WRITE, z, .blocks = 1);
	put(z, b, b);
	ASK_OK(p, FLUSH, 0);
	check(z, 0, 2 * b);
}

static void two_processes(void)
{
	struct peer p = peer_start(t.spec);

	see_each_other(&p);
	peer_end(&p, 0);
}

static void twin_node(void)
{
	struct peer p;

	if (!t.twin)
		conform_skip("no second node of the device is named (--twin)");
	p = peer_start(t.twin);
	see_each_other(&p);
	peer_end(&p, 0);
}

static void limits_of_all(void)
{
	uint32_t max = t.d->geo.max_active, half = max / 2;
	struct peer p;

	if (!max || max + 2 > t.nr || max > 512)
		conform_skip("no limit of active zones, or a large one");
	p = peer_start(t.spec);
	for (uint32_t i = 0; i < half; i++) {
		ASK_OK(&p, WRITE, t.zone[i], .blocks = 1);
		ASK_OK(&p, CLOSE, t.zone[i]);
	}
	for (uint32_t i = half; i < max; i++) {
		put(t.zone[i], 0, t.block);
		OK(zns_dev_close_zone(t.d, t.zone[i], E));
	}
	FAILS(zns_dev_write(t.d, t.zone[max], 0, t.buf, t.block, E), EOVERFLOW, "active");
	TRUE(ASK(&p, WRITE, t.zone[max], .blocks = 1).rc == -EOVERFLOW);
	ASK_OK(&p, RESET, t.zone[max - 1]);
	put(t.zone[max], 0, t.block);
	peer_end(&p, 0);
}

static void killed_process(void)
{
	struct peer p = peer_start(t.spec);
	uint32_t z = t.zone[0];

	ASK_OK(&p, OPEN, t.zone[1]);
	ASK_OK(&p, WRITE, z, .blocks = 4);
	peer_send(&p,
		  (struct request){
			  .what = WRITE, .zone = z, .blocks = 64, .off = 4 * (uint64_t)t.block });
	peer_end(&p, SIGKILL);
	/*
	 * The last write was either done or not. The zone continues from its present write pointer.
	 */
	TRUE(zone_of(z).wp == 4 * t.block || zone_of(z).wp == 68 * (uint64_t)t.block ||
	     (zone_of(z).wp - 4 * t.block) % t.block == 0);
	check(z, 0, 4 * t.block);
	put(z, zone_of(z).wp, t.block);
	ZONE(t.zone[1], ZNS_ZONE_EXP_OPEN, 0);
	OK(zns_dev_close_zone(t.d, t.zone[1], E));
}

/* Appends need no coordination: each gets a place of its own, which must contain the given data. */
static void append_race(void)
{
	struct peer p[3];
	uint32_t z = t.zone[0], rounds = 20, nr = 0;
	uint64_t place[60];

	for (int i = 0; i < 3; i++)
		p[i] = peer_start(t.spec);
	for (uint32_t r = 0; r < rounds; r++) {
		for (uint32_t i = 0; i < 3; i++)
			peer_send(&p[i], (struct request){ .what = APPEND,
							   .zone = z,
							   .blocks = 1,
							   .tag = 1 + r * 3 + i });
		for (uint32_t i = 0; i < 3; i++) {
			struct answer a = peer_wait(&p[i]);

			if (a.rc)
				conform_fail(__FILE__, __LINE__, "append: %d %s", a.rc, a.err.msg);
			place[nr++] = a.off;
		}
	}
	SAME(zone_of(z).wp, nr * (uint64_t)t.block);
	for (uint32_t i = 0; i < nr; i++) {
		TRUE(place[i] % t.block == 0 && place[i] < nr * (uint64_t)t.block);
		for (uint32_t k = 0; k < i; k++)
			TRUE(place[i] != place[k]);
		OK(zns_dev_read(t.d, z, place[i], t.buf, t.block, E));
		TRUE(is_pattern(t.buf, z, 0, t.block, 1 + i));
	}
	for (int i = 0; i < 3; i++)
		peer_end(&p[i], 0);
}

static void second_handle(void)
{
	uint32_t z = t.zone[0], b = t.block;
	struct zns_dev *d2, *keep = t.d;

	put(z, 0, b);
	OK(zns_dev_open(t.spec, 0, &d2, E));
	t.d = d2;
	put(z, b, b);
	t.d = keep;
	put(z, 2 * b, b);
	zns_dev_close(d2);
	put(z, 3 * b, b);
	check(z, 0, 4 * b);
	OK(zns_dev_open(t.spec, 0, &d2, E));
	t.d = d2;
	check(z, 0, 4 * b);
	ZONE(z, ZNS_ZONE_IMP_OPEN, 4 * b);
	t.d = keep;
	zns_dev_close(d2);
}

const struct conform_case share_cases[] = {
	{ "threads: writers on zones of their own", parallel_writers, 2 },
	{ "threads: readers beside writers", read_beside_write, 2 },
	{ "two handles in one process", second_handle, 1 },
	{ "two processes see each other's write pointers", two_processes, 1 },
	{ "two processes share the limits", limits_of_all, 4 },
	{ "two processes, one killed", killed_process, 2 },
	{ "three processes append to one zone", append_race, 1 },
	{ "two nodes of one device", twin_node, 1 },
	{ 0 },
};
