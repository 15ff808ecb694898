/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Answers requests of images/zns-memory.proto, on one connection at a time. The connection of a
 * slow client is closed.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "pager.h"
#include "zns/broker.h"
#include "zns/packet.h"

#define DIR_NAME "memory"
#define TIMEOUT_S 2
#define REQUEST_MAX 4096U /* bytes */
#define DRAM_MIN MIB(1)

static void socket_name(const struct pager *p, char *out, size_t len)
{
	snprintf(out, len, "%s.sock", p->name);
}

int control_open(struct pager *p, struct zns_err *err)
{
	char name[ZNS_NAME_MAX + 8];
	int ret;

	p->dir = zns_run_subdir(DIR_NAME, err);
	if (p->dir < 0)
		return p->dir;
	socket_name(p, name, sizeof(name));
	p->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->listen < 0)
		return zns_fail_sys(err, -errno, "no socket");
	/*
	 * the keeper allows one context of a name, so if the socket exists, it belongs to a dead
	 * pager
	 */
	ret = zns_run_bind(p->listen, p->dir, name);
	if (!ret && listen(p->listen, 16))
		ret = -errno;
	if (ret)
		return zns_fail_sys(err, ret, "cannot listen on %s/" DIR_NAME "/%s", zns_run_dir(),
				    name);
	return quiesce_open(p, err);
}

void control_close(struct pager *p)
{
	char name[ZNS_NAME_MAX + 8];

	if (p->listen >= 0) {
		socket_name(p, name, sizeof(name));
		unlinkat(p->dir, name, 0);
		close(p->listen);
	}
	quiesce_close(p);
	if (p->dir >= 0)
		close(p->dir);
	p->listen = p->dir = -1;
}

bool control_is_root(int sk)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return !getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) && (!c.uid || c.uid == geteuid());
}

static int send_answer(int sk, const ZnsPb__MemoryAnswer *a)
{
	size_t len = zns_pb__memory_answer__get_packed_size(a);
	cleanup_free uint8_t *buf = malloc(len ? len : 1);

	if (!buf)
		return -ENOMEM;
	zns_pb__memory_answer__pack(a, buf);
	return zns_msg_send(sk, buf, (uint32_t)len, NULL, NULL);
}

static int status(struct pager *p, ZnsPb__MemoryStatus *st, struct zns_err *err)
{
	struct zns_pages_stat pages;
	char id[ZNS_UUID_STR];
	int ret = zns_mem_status(p->m, st);

	if (ret)
		return zns_fail(err, ret, "no memory for an answer");
	zns_pages_stat(p->pages, &pages);
	st->has_qos_mibps = st->has_write_rate = true;
	st->qos_mibps = pages.qos_mibps;
	st->write_rate = pages.rate;
	st->has_encrypted = true;
	st->encrypted = zns_pages_key_fd(p->pages) >= 0;
	st->has_unread = p->origin && zns_origin_left(p->origin);
	if (st->has_unread)
		st->checkpoint = strdup(zns_uuid_format(zns_origin_checkpoint(p->origin), id));
	return 0;
}

static int act(struct pager *p, const ZnsPb__MemoryRequest *q, ZnsPb__MemoryAnswer *a,
	       ZnsPb__MemoryStatus *st, struct zns_err *err)
{
	int ret;

	switch (q->op) {
	case ZNS_PB__MEMORY_OP__MEMORY_STATUS:
		ret = status(p, st, err);
		if (!ret)
			a->status = st;
		return ret;
	case ZNS_PB__MEMORY_OP__MEMORY_LIMIT:
		if (!q->has_dram || q->dram < DRAM_MIN)
			return zns_fail(err, -EINVAL, "a budget is 1 MiB at least");
		zns_mem_limit(p->m, q->dram);
		return 0;
	case ZNS_PB__MEMORY_OP__MEMORY_HIBERNATE:
		zns_mem_hibernate(p->m);
		return 0;
	case ZNS_PB__MEMORY_OP__MEMORY_WAKE:
		zns_mem_wake(p->m);
		return 0;
	case ZNS_PB__MEMORY_OP__MEMORY_IDLE:
		zns_mem_idle(p->m, q->has_idle_ms ? q->idle_ms : 0);
		return 0;
	case ZNS_PB__MEMORY_OP__MEMORY_DETACH:
		ret = zns_mem_detach(p->m, err);
		p->end = !ret;
		return ret;
	default:
		return zns_fail(err, -EINVAL, "this pager does not know request %d", (int)q->op);
	}
}

/* Receives and answers one request. False: close the connection. */
static bool answer(struct pager *p, int sk)
{
	ZnsPb__MemoryAnswer a = ZNS_PB__MEMORY_ANSWER__INIT;
	ZnsPb__MemoryStatus st;
	struct zns_err err = ZNS_ERR_INIT;
	cleanup_free uint8_t *body = NULL;
	ZnsPb__MemoryRequest *q;
	uint32_t len;
	int ret;

	if (zns_msg_recv(sk, &body, &len, NULL, NULL) || len > REQUEST_MAX)
		return false;
	q = zns_pb__memory_request__unpack(NULL, len, body);
	ret = q ? act(p, q, &a, &st, &err) :
		  zns_fail(&err, -EPROTO,
			   "this is no request: znsctl and zns-mem may be of different builds");
	if (q)
		zns_pb__memory_request__free_unpacked(q, NULL);
	if (ret) {
		a.error = err.msg;
		a.has_code = true;
		a.code = ret;
	}
	ret = send_answer(sk, &a);
	if (a.status)
		zns_mem_status_free(a.status);
	return !ret && !p->end;
}

void control_serve(struct pager *p)
{
	const struct timeval limit = { .tv_sec = TIMEOUT_S };
	int sk = accept4(p->listen, NULL, NULL, SOCK_CLOEXEC);

	if (sk < 0)
		return;
	setsockopt(sk, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sk, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (control_is_root(sk))
		while (answer(p, sk))
			;
	close(sk);
}
