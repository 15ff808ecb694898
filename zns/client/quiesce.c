/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The dump's side of zns/quiesce.h. Everything that a pager sends is checked before it is used. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "zns/broker.h"
#include "zns/quiesce.h"
#include "zns/packet.h"
#include "zns/util.h"

#define DIR_NAME "memory"
/* time limit in seconds; before it answers, the pager completes an eviction that is under way */
#define BEGIN_S 30
/* time limit in seconds; shorter than BEGIN_S, since the tasks may be frozen by then */
#define ASK_S 10
#define UNIT 65536ULL
#define PAGE 4096ULL
#define ADDRESSES (1ULL << 47)
#define UNITS_MAX (1u << 28) /* 16 TiB in units of 64 KiB */

struct zns_quiesce {
	int sk;
	char name[ZNS_NAME_MAX + 1];
	uint8_t context[ZNS_UUID_LEN], device[ZNS_UUID_LEN];
};

const uint8_t *zns_quiesce_context(const struct zns_quiesce *s)
{
	return s->context;
}

const uint8_t *zns_quiesce_device(const struct zns_quiesce *s)
{
	return s->device;
}

const char *zns_quiesce_name(const struct zns_quiesce *s)
{
	return s->name;
}

/* Connects to a pager's socket. -1: no pager listens there, or the socket does not belong to
 * root. */
static int dial(int dir, const char *file)
{
	cleanup_close int sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(struct ucred);
	struct ucred c;

	if (sk < 0 || zns_run_connect(sk, dir, file) ||
	    getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 || (c.uid && c.uid != geteuid()))
		return -1;
	return zns_take_fd(&sk);
}

/* Sends a request. Returns 0 or the pager's error; *fd is the answer's descriptor, or -1. */
static int ask(int sk, const char *name, const struct iovec *iov, unsigned nr,
	       struct zns_quiesce_answer *a, int *fd, struct zns_err *err)
{
	struct iovec in = { a, sizeof(*a) };
	uint32_t nr_fd;
	int ret = zns_packet_send(sk, iov, nr, NULL, 0);

	*fd = -1;
	*a = (struct zns_quiesce_answer){ 0 };
	if (!ret)
		ret = zns_packet_recv(sk, &in, 1, fd, 1, &nr_fd);
	if (!ret || ret == -EPIPE || ret == -ECONNRESET)
		return zns_fail(err, -EPIPE,
				"the pager of memory context %s died; run the dump again", name);
	if (ret > 0 && ret != sizeof(*a))
		ret = -EPROTO;
	if (ret > 0 && a->code <= 0) {
		a->msg[sizeof(a->msg) - 1] = 0;
		return a->code ? zns_fail(err, a->code, "%s", a->msg) : 0;
	}
	return zns_fail_sys(err, ret < 0 ? ret : -EPROTO,
			    "cannot talk to the pager of memory context %s", name);
}

/* Asks one pager to stop evicting for these tasks. -ENOENT: it does not serve them. */
static int begin_one(int sk, const char *name, const pid_t *pid, uint32_t nr,
		     struct zns_quiesce_answer *a, struct zns_err *err)
{
	struct zns_quiesce_ask q = { .op = ZNS_QUIESCE_BEGIN, .nr = nr };
	struct iovec iov[2] = { { &q, sizeof(q) }, { (void *)pid, nr * sizeof(*pid) } };
	int fd, ret;

	zns_packet_timeouts(sk, BEGIN_S);
	ret = ask(sk, name, iov, 2, a, &fd, err);
	if (fd >= 0)
		close(fd);
	return ret;
}

static int keep(struct zns_quiesce **out, int *sk, const char *name,
		const struct zns_quiesce_answer *a, struct zns_err *err)
{
	struct zns_quiesce *s = *out ? NULL : calloc(1, sizeof(*s));

	if (!s)
		return *out ? zns_fail(err, -EOPNOTSUPP,
				       "these processes are of two memory contexts, %s and %s: "
				       "`znsctl memory detach` one of them",
				       (*out)->name, name) :
			      zns_fail(err, -ENOMEM, "no memory for a memory context");
	zns_packet_timeouts(*sk, ASK_S);
	s->sk = zns_take_fd(sk);
	snprintf(s->name, sizeof(s->name), "%s", name);
	memcpy(s->context, a->context, ZNS_UUID_LEN);
	memcpy(s->device, a->device, ZNS_UUID_LEN);
	*out = s;
	return 0;
}

/* Asks the pager that listens on the socket @file to stop evicting for these tasks, if it serves
 * them. */
static int try(int dir, char *file, const pid_t *pid, uint32_t nr, struct zns_quiesce **out,
	       struct zns_err *err)
{
	size_t len = strlen(file), tail = strlen(ZNS_QUIESCE_SUFFIX);
	struct zns_quiesce_answer a = { 0 };
	cleanup_close int sk = -1;
	int ret;

	if (len <= tail || strcmp(file + len - tail, ZNS_QUIESCE_SUFFIX) ||
	    len - tail > ZNS_NAME_MAX)
		return 0;
	sk = dial(dir, file);
	file[len - tail] = 0;
	if (sk < 0)
		return 0; /* the pager has died; the guard will find out which pages are missing */
	ret = begin_one(sk, file, pid, nr, &a, err);
	if (ret == -ENOENT)
		return 0;
	return ret ? ret : keep(out, &sk, file, &a, err);
}

int zns_quiesce_begin(const pid_t *pid, uint32_t nr, struct zns_quiesce **out, struct zns_err *err)
{
	cleanup_close int dir = -1;
	char path[4096];
	struct dirent *e;
	int ret = 0;
	DIR *d;

	*out = NULL;
	nr = zns_min(nr, ZNS_QUIESCE_PIDS_MAX);
	if ((size_t)snprintf(path, sizeof(path), "%s/" DIR_NAME, zns_run_dir()) >= sizeof(path))
		return 0;
	d = opendir(path);
	/* the directory does not exist: no memory context was ever created on this machine */
	if (!d)
		return 0;
	dir = zns_run_subdir(DIR_NAME, err);
	ret = zns_min(dir, 0);
	while (!ret && (e = readdir(d)))
		ret = try(dir, e->d_name, pid, nr, out, err);
	closedir(d);
	if (ret) {
		zns_quiesce_end(*out);
		*out = NULL;
	}
	return ret;
}

/* ---- lists ---- */

bool zns_quiesce_sane(const struct zns_quiesce_unit *u, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (u[i].addr % PAGE || u[i].addr >= ADDRESSES || u[i].off % UNIT ||
		    !(u[i].mask | u[i].clean) || u[i].mask & u[i].clean)
			return false;
	return true;
}

static int by_addr(const void *a, const void *b)
{
	const struct zns_quiesce_unit *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int read_list(const struct zns_quiesce *s, int fd, uint32_t nr,
		     struct zns_quiesce_unit **out, struct zns_err *err)
{
	const int want = F_SEAL_WRITE | F_SEAL_SHRINK;
	size_t len = (size_t)nr * sizeof(**out);
	cleanup_free struct zns_quiesce_unit *u = NULL;
	struct stat st;

	if (fd < 0 || nr > UNITS_MAX || (fcntl(fd, F_GET_SEALS) & want) != want || fstat(fd, &st) ||
	    (uint64_t)st.st_size != len)
		return zns_fail(err, -EPROTO,
				"the pager of memory context %s sent an impossible list", s->name);
	u = malloc(len + 1);
	if (!u)
		return zns_fail(err, -ENOMEM, "no memory for a list of units");
	if (zns_pread_all(fd, u, len, 0) || !zns_quiesce_sane(u, nr))
		return zns_fail(err, -EPROTO,
				"the pager of memory context %s sent an impossible list", s->name);
	qsort(u, nr, sizeof(*u), by_addr);
	*out = u;
	u = NULL;
	return 0;
}

int zns_quiesce_units(struct zns_quiesce *s, pid_t pid, struct zns_quiesce_unit **out, size_t *nr,
		      struct zns_err *err)
{
	struct zns_quiesce_ask q = { .op = ZNS_QUIESCE_UNITS, .pid = pid };
	struct iovec iov = { &q, sizeof(q) };
	cleanup_close int fd = -1;
	struct zns_quiesce_answer a;
	int ret = ask(s->sk, s->name, &iov, 1, &a, &fd, err);

	if (!ret)
		ret = read_list(s, fd, a.nr, out, err);
	*nr = ret ? 0 : a.nr;
	return ret;
}

int zns_quiesce_key(struct zns_quiesce *s, int *fd, struct zns_err *err)
{
	struct zns_quiesce_ask q = { .op = ZNS_QUIESCE_KEY };
	struct iovec iov = { &q, sizeof(q) };
	struct zns_quiesce_answer a;
	int ret = ask(s->sk, s->name, &iov, 1, &a, fd, err);

	if (ret && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return ret;
}

int zns_quiesce_owns(struct zns_quiesce *s, pid_t pid, uint64_t start, uint64_t end,
		     struct zns_err *err)
{
	struct zns_quiesce_ask q = {
		.op = ZNS_QUIESCE_OWNS, .pid = pid, .start = start, .end = end
	};
	struct iovec iov = { &q, sizeof(q) };
	cleanup_close int fd = -1;
	struct zns_quiesce_answer a;

	return ask(s->sk, s->name, &iov, 1, &a, &fd, err);
}

void zns_quiesce_end(struct zns_quiesce *s)
{
	if (s)
		close(s->sk);
	free(s);
}
