/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports to dumps where the processes' memory is (zns/quiesce.h). One dump at a time. When its
 * connection closes, for whatever reason, eviction continues.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "pager.h"
#include "zns/quiesce.h"
#include "zns/packet.h"

#define TIMEOUT_S 2

struct packet {
	struct zns_quiesce_ask ask;
	int32_t pid[ZNS_QUIESCE_PIDS_MAX];
};

static void socket_name(const struct pager *p, char *out, size_t len)
{
	snprintf(out, len, "%s" ZNS_QUIESCE_SUFFIX, p->name);
}

int quiesce_open(struct pager *p, struct zns_err *err)
{
	char name[ZNS_NAME_MAX + 8];
	int ret;

	socket_name(p, name, sizeof(name));
	p->quiesce_listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->quiesce_listen < 0)
		return zns_fail_sys(err, -errno, "cannot make a socket");
	ret = zns_run_bind(p->quiesce_listen, p->dir, name);
	if (!ret && listen(p->quiesce_listen, 16))
		ret = -errno;
	return ret ? zns_fail_sys(err, ret, "cannot listen on %s", name) : 0;
}

void quiesce_close(struct pager *p)
{
	char name[ZNS_NAME_MAX + 8];

	if (p->quiesce_listen >= 0) {
		socket_name(p, name, sizeof(name));
		unlinkat(p->dir, name, 0);
		close(p->quiesce_listen);
	}
	if (p->quiesce >= 0)
		close(p->quiesce);
	p->quiesce_listen = p->quiesce = -1;
}

static void end(struct pager *p)
{
	close(p->quiesce);
	p->quiesce = -1;
	zns_mem_unquiesce(p->m);
}

/*
 * Returns a memfd with the list of units. It has F_SEAL_WRITE, so that the list cannot change while
 * the dump reads it.
 */
static int give_list(const struct zns_quiesce_unit *u, size_t nr, struct zns_err *err)
{
	int fd = memfd_create("zns-mem units", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int ret = fd < 0 ? -errno : zns_pwrite_all(fd, u, nr * sizeof(*u), 0);

	if (!ret &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		ret = -errno;
	if (!ret)
		return fd;
	if (fd >= 0)
		close(fd);
	return zns_fail_sys(err, ret, "cannot make the list of units");
}

static int list_units(struct pager *p, pid_t pid, uint32_t *nr_out, struct zns_err *err)
{
	cleanup_free struct zns_mem_unit *v = NULL;
	cleanup_free struct zns_quiesce_unit *u = NULL;
	bool key = zns_pages_key_fd(p->pages) >= 0;
	size_t nr = 0;
	int ret = zns_mem_units(p->m, pid, &v, &nr, err);

	if (!ret && nr > UINT32_MAX)
		ret = zns_fail(err, -E2BIG, "too many units");
	u = ret ? NULL : malloc((nr + 1) * sizeof(*u));
	if (!ret && !u)
		ret = zns_fail(err, -ENOMEM, "no memory for a list of units");
	for (size_t i = 0; !ret && i < nr; i++) {
		u[i] = (struct zns_quiesce_unit){ .addr = v[i].addr,
						  .hash = v[i].ref.hash,
						  .mask = v[i].mask,
						  .clean = v[i].clean };
		if (key) {
			memcpy(u[i].nonce, v[i].ref.nonce, sizeof(u[i].nonce));
			memcpy(u[i].tag, v[i].ref.tag, sizeof(u[i].tag));
		}
		if (zns_pages_where(p->pages, v[i].ref.place, &u[i].zone, &u[i].off))
			ret = zns_fail(err, -EFAULT, "a unit of process %d has no place", pid);
	}
	*nr_out = (uint32_t)nr;
	return ret ? ret : give_list(u, nr, err);
}

static int act(struct pager *p, const struct packet *q, size_t len, struct zns_quiesce_answer *a,
	       int *fd, struct zns_err *err)
{
	const struct zns_quiesce_ask *k = &q->ask;
	int ret = -EPROTO;

	if (len < sizeof(*k) || k->nr > ZNS_QUIESCE_PIDS_MAX ||
	    len != sizeof(*k) + (k->op == ZNS_QUIESCE_BEGIN ? k->nr : 0) * sizeof(*q->pid))
		return zns_fail(
			err, -EPROTO,
			"this is no request: zns-helper and zns-mem may be of different builds");
	switch (k->op) {
	case ZNS_QUIESCE_BEGIN:
		ret = zns_mem_quiesce(p->m, q->pid, k->nr, err);
		if (!ret && p->origin && zns_origin_left(p->origin)) {
			zns_mem_unquiesce(p->m);
			return zns_fail(err, -EBUSY,
					"memory of %s is still in the checkpoint that it was "
					"restored from: `znsctl memory detach %s` first",
					p->name, p->name);
		}
		zns_pages_id(p->pages, a->context, a->device);
		return ret;
	case ZNS_QUIESCE_UNITS:
		*fd = list_units(p, k->pid, &a->nr, err);
		return *fd < 0 ? *fd : 0;
	case ZNS_QUIESCE_KEY:
		ret = zns_pages_key_fd(p->pages);
		*fd = ret < 0 ? -1 : fcntl(ret, F_DUPFD_CLOEXEC, 3);
		return ret >= 0 && *fd < 0 ?
			       zns_fail_sys(
				       err, -errno,
				       "cannot duplicate the descriptor of the context's key") :
			       0;
	case ZNS_QUIESCE_OWNS:
		return zns_mem_owns(p->m, k->pid, k->start, k->end, err);
	}
	return zns_fail(err, ret, "this pager does not know request %u", k->op);
}

/*
 * Receives and answers one request. 0: it was answered, and the result is in @a->code; otherwise
 * close the connection.
 */
static int answer(struct pager *p, int sk, struct zns_quiesce_answer *a, bool begins)
{
	static struct packet q;
	struct iovec in = { &q, sizeof(q) }, out = { a, sizeof(*a) };
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t nr;
	int fd = -1, ret = zns_packet_recv(sk, &in, 1, NULL, 0, &nr);

	*a = (struct zns_quiesce_answer){ .code = -EPIPE };
	if (ret <= 0)
		return ret ? ret : -EPIPE;
	if (ret >= (int)sizeof(q.ask) && (q.ask.op == ZNS_QUIESCE_BEGIN) != begins)
		a->code = zns_fail(&err, -EPROTO, "a request at a wrong time");
	else
		a->code = act(p, &q, (size_t)ret, a, &fd, &err);
	snprintf(a->msg, sizeof(a->msg), "%s", a->code ? err.msg : "");
	ret = zns_packet_send(sk, &out, 1, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
	return ret;
}

void quiesce_accept(struct pager *p)
{
	int sk = accept4(p->quiesce_listen, NULL, NULL, SOCK_CLOEXEC);
	struct zns_quiesce_answer a;
	bool sent;

	if (sk < 0)
		return;
	zns_packet_timeouts(sk, TIMEOUT_S);
	a.code = -EPERM;
	sent = control_is_root(sk) && !answer(p, sk, &a, true);
	if (sent && !a.code) {
		p->quiesce = sk;
		return;
	}
	if (!a.code) /* eviction was paused, but the dump that asked for it is gone */
		zns_mem_unquiesce(p->m);
	close(sk);
}

void quiesce_serve(struct pager *p)
{
	struct zns_quiesce_answer a;

	if (answer(p, p->quiesce, &a, false))
		end(p);
}
