/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pager's side of the connection to the keeper: see zns/memkeep.h. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "wire.h"
#include "zns/broker.h"
#include "zns/config.h"
#include "zns/daemon.h"
#include "zns/packet.h"

#define PROGRAM "zns-memkeep"
#define READY_MS 10000
#define LOCK_MS 15000
/* number of attempts to connect, since a keeper without contexts may be about to exit */
#define TRIES 5

struct zns_memkeep {
	pthread_mutex_t lock;
	int sk;
	pid_t pid;
	char name[ZNS_NAME_MAX + 1];
};

static int gone(struct zns_err *err, int ret)
{
	if (ret == -EPIPE || ret == -ECONNRESET || ret == 0)
		return zns_fail(err, -EPIPE, "the keeper of memory contexts is gone");
	return zns_fail_sys(err, ret, "cannot talk to the keeper of memory contexts");
}

/*
 * Finds the tenant, with whose other containers the context shares its limit: the rule of
 * tenants.conf for the container, else its namespace (shop for shop+web+app), else all containers
 * that have neither.
 */
static void tenant_of(const char *name, char *out, size_t len)
{
	char path[ZNS_NAME_MAX + 1];
	struct zns_tenant t;

	snprintf(path, sizeof(path), "%s", name);
	for (char *p = path; *p; p++)
		if (*p == '+')
			*p = '/';
	if (!zns_tenant_find(path, -1, &t, NULL) && *t.who)
		snprintf(out, len, "`%s` of tenants.conf", t.who);
	else if (strchr(path, '/'))
		snprintf(out, len, "namespace %.*s", (int)strcspn(path, "/"), path);
	else
		snprintf(out, len, "containers without a rule in tenants.conf");
}

static uint32_t tenant_number(const char *name)
{
	char text[600];

	tenant_of(name, text, sizeof(text));
	return (uint32_t)zns_hash(text, strlen(text));
}

static int refused(const char *name, const struct mk_head *h, struct zns_err *err)
{
	char text[600];

	tenant_of(name, text, sizeof(text));
	if (h->code == -EEXIST)
		return zns_fail(err, h->code, "a memory context of this name is kept already");
	if (h->code == -ENOSPC)
		return zns_fail(err, h->code,
				"there are %u memory contexts here, and there can be no more: "
				"`znsctl memory detach` one that is not needed",
				h->nr);
	if (h->code == -EDQUOT)
		return zns_fail(
			err, h->code,
			"%s: %u of the %u memory contexts that there can be, and no tenant "
			"gets more than are left for all: `znsctl memory detach` one of these",
			text, h->nr, ZNS_MEMKEEP_CONTEXTS_MAX);
	return zns_fail_sys(err, h->code, "the keeper of memory contexts refuses");
}

/* Waits for MK_ACK. */
static int acked(int sk, const char *name, struct zns_err *err)
{
	struct mk_packet *p = malloc(sizeof(*p));
	int ret = p ? mk_recv(sk, p) : -ENOMEM;

	if (ret == 1) {
		if (p->h.op != MK_ACK)
			p->h.code = -EPROTO;
		ret = p->h.code ? refused(name, &p->h, err) : 0;
		mk_close(p);
	} else {
		ret = gone(err, ret);
	}
	free(p);
	return ret;
}

static int dial(int dir, pid_t *pid)
{
	cleanup_close int sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	struct ucred c;
	socklen_t len = sizeof(c);

	if (sk < 0)
		return -errno;
	zns_packet_timeouts(sk, MK_TIMEOUT_S);
	zns_run_address(dir, MK_SOCKET, &a);
	if (connect(sk, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0)
		return -errno;
	if (c.uid && c.uid != geteuid())
		return -EPERM;
	*pid = c.pid;
	return zns_take_fd(&sk);
}

static int start(struct zns_err *err)
{
	char prog[PATH_MAX], log[PATH_MAX];
	char *argv[] = { prog, NULL };
	const struct zns_daemon d = { .name = PROGRAM,
				      .argv = argv,
				      .log = log,
				      .ready_ms = READY_MS,
				      .keeps = zns_daemon_keeps };
	int ret = zns_need_program("the keeper", PROGRAM, prog, sizeof(prog), err);

	if (ret)
		return ret;
	if ((size_t)snprintf(log, sizeof(log), "%s/" MK_DIR "/" MK_LOG, zns_run_dir()) >=
	    sizeof(log))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s", zns_run_dir());
	return zns_daemon_start(&d, err);
}

static bool nobody(int ret)
{
	return ret == -ECONNREFUSED || ret == -ENOENT;
}

/* Connects to the keeper, and starts one if none runs. */
static int reach(pid_t *pid, struct zns_err *err)
{
	cleanup_close int dir = zns_run_subdir(MK_DIR, err), lock = -1;
	int sk, ret;

	if (dir < 0)
		return dir;
	sk = dial(dir, pid);
	if (sk >= 0)
		return sk;
	if (!nobody(sk))
		return zns_fail_sys(err, sk,
				    "cannot connect to the keeper of memory contexts in %s",
				    zns_run_dir());
	lock = openat(dir, MK_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return zns_fail_sys(err, -errno, "cannot open %s/" MK_DIR "/" MK_LOCK,
				    zns_run_dir());
	ret = zns_flock_wait(lock, LOCK_MS);
	if (ret)
		return zns_fail_sys(err, ret, "somebody has been starting " PROGRAM);
	sk = dial(dir, pid); /* the process that had the lock before may have started a keeper */
	if (!nobody(sk))
		return sk < 0 ? zns_fail_sys(err, sk,
					     "cannot connect to the keeper of memory contexts") :
				sk;
	ret = start(err);
	if (ret)
		return ret;
	sk = dial(dir, pid);
	return sk < 0 ? gone(err, nobody(sk) ? -EPIPE : sk) : sk;
}

static int begin(struct zns_memkeep *k, bool kept, struct zns_err *err)
{
	struct mk_head h = { .op = MK_BEGIN, .len = tenant_number(k->name), .code = kept };
	int ret = -EPIPE;

	snprintf(h.name, sizeof(h.name), "%s", k->name);
	for (int i = 0; i < TRIES && ret == -EPIPE; i++) {
		int sk = reach(&k->pid, err);

		if (sk < 0) {
			ret = sk;
			continue;
		}
		ret = mk_send(sk, &h, NULL, NULL);
		ret = ret ? gone(err, ret) : acked(sk, k->name, err);
		if (ret)
			close(sk);
		else
			k->sk = sk;
	}
	return ret;
}

static struct zns_memkeep *new_one(const char *name)
{
	struct zns_memkeep *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	pthread_mutex_init(&k->lock, NULL);
	k->sk = -1;
	snprintf(k->name, sizeof(k->name), "%s", name);
	return k;
}

int zns_memkeep_open(const char *name, struct zns_memkeep **out, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	struct zns_memkeep *k;
	int ret;

	if (!err)
		err = &local;
	ret = zns_check_memory(name, err);
	if (ret)
		return ret;
	k = new_one(name);
	if (!k)
		return zns_fail(err, -ENOMEM, "no memory for a keeper's connection");
	ret = begin(k, false, err);
	if (ret) {
		zns_memkeep_leave(k);
		return ret;
	}
	*err = (struct zns_err)ZNS_ERR_INIT;
	*out = k;
	return 0;
}

int zns_memkeep_hand(struct zns_memkeep *k, const void *data, size_t len, const int *fds,
		     uint32_t nr, struct zns_err *err)
{
	int ret;

	if (len > ZNS_MEMKEEP_DATA_MAX || nr > ZNS_MEMKEEP_FDS_MAX)
		return zns_fail(
			err, -E2BIG,
			"the memory context has %u descriptors and %zu bytes to keep, a keeper holds at most %u and %u",
			nr, len, ZNS_MEMKEEP_FDS_MAX, ZNS_MEMKEEP_DATA_MAX);
	pthread_mutex_lock(&k->lock);
	ret = k->sk < 0 ? -EPIPE : mk_send_set(k->sk, data, len, fds, nr);
	ret = ret ? gone(err, ret) : acked(k->sk, k->name, err);
	pthread_mutex_unlock(&k->lock);
	return ret;
}

int zns_memkeep_fd(const struct zns_memkeep *k)
{
	return k->sk;
}

pid_t zns_memkeep_pid(const struct zns_memkeep *k)
{
	return k->pid;
}

int zns_memkeep_again(struct zns_memkeep *k, struct zns_err *err)
{
	struct zns_err local = ZNS_ERR_INIT;
	int ret;

	pthread_mutex_lock(&k->lock);
	if (k->sk >= 0)
		close(k->sk);
	k->sk = -1;
	ret = begin(k, true, err ? err : &local);
	pthread_mutex_unlock(&k->lock);
	return ret;
}

void zns_memkeep_end(struct zns_memkeep *k)
{
	struct mk_head h = { .op = MK_END };

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	if (k->sk >= 0 && !mk_send(k->sk, &h, NULL, NULL))
		acked(k->sk, k->name, NULL);
	pthread_mutex_unlock(&k->lock);
	zns_memkeep_leave(k);
}

void zns_memkeep_leave(struct zns_memkeep *k)
{
	if (!k)
		return;
	if (k->sk >= 0)
		close(k->sk);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

/* ---- for a successor ---- */

void zns_memkeep_set_free(struct zns_memkeep_set *s)
{
	for (uint32_t i = 0; i < s->nr; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	free(s->fds);
	free(s->data);
	*s = (struct zns_memkeep_set){ .nr = 0 };
}

static int receive(int sk, struct mk_packet *p, struct mk_head *first, struct mk_set *s)
{
	int ret = mk_recv(sk, p);

	if (ret != 1)
		return ret ? ret : -EPIPE;
	*first = p->h;
	if (p->h.op != MK_BEGIN) {
		mk_close(p);
		return -EPROTO;
	}
	do {
		ret = mk_recv(sk, p);
		ret = ret == 1 ? mk_set_add(s, p) : ret ? ret : -EPIPE;
	} while (!ret);
	return ret == 1 ? 0 : ret;
}

int zns_memkeep_take(int fd, struct zns_memkeep **out, struct zns_memkeep_set *set,
		     struct zns_err *err)
{
	cleanup_free struct mk_packet *p = malloc(sizeof(*p));
	struct mk_head first = { 0 };
	struct mk_set s = { 0 };
	struct ucred c;
	socklen_t len = sizeof(c);
	int ret = p ? 0 : -ENOMEM;

	fcntl(fd, F_SETFD, FD_CLOEXEC);
	zns_packet_timeouts(fd, MK_TIMEOUT_S);
	if (!ret)
		ret = receive(fd, p, &first, &s);
	if (!ret && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0)
		ret = -errno;
	if (!ret && !(*out = new_one(first.name)))
		ret = -ENOMEM;
	if (ret) {
		mk_set_free(&s);
		close(fd);
		return zns_fail_sys(err, ret,
				    "cannot take over what the keeper has of this context");
	}
	(*out)->sk = fd;
	(*out)->pid = c.pid;
	*set = (struct zns_memkeep_set){
		.data = s.data, .len = s.len, .fds = s.fds, .nr = s.nr, .deaths = first.nr
	};
	snprintf(set->name, sizeof(set->name), "%s", first.name);
	return 0;
}
