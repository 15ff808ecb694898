/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One memory context in the keeper: receives what its pager hands over, and handles the pager's
 * death.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include "keeper.h"
#include "zns/grow.h"

#define BACKOFF_NS 100000000ull
#define BACKOFF_MAX_NS 10000000000ull

struct context *contexts;
uint32_t nr_contexts;
static uint32_t max_contexts;

int context_new(int sk, pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (pidfd < 0 || nr_contexts == CONTEXTS_MAX + GUESTS_MAX ||
	    zns_grow(contexts, nr_contexts, max_contexts)) {
		if (pidfd >= 0)
			close(pidfd);
		close(sk);
		return -EMFILE;
	}
	contexts[nr_contexts++] = (struct context){
		.sk = sk, .pidfd = pidfd, .pid = pid, .exe = -1, .since_ns = zns_mono_ns()
	};
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void context_forget(uint32_t n)
{
	struct context *c = &contexts[n];

	close_fd(&c->sk);
	close_fd(&c->pidfd);
	close_fd(&c->exe);
	mk_set_free(&c->has);
	mk_set_free(&c->next);
	*c = contexts[--nr_contexts];
}

static bool taken(const struct context *self, const char *name)
{
	for (uint32_t i = 0; i < nr_contexts; i++)
		if (&contexts[i] != self && !strcmp(contexts[i].name, name))
			return true;
	return false;
}

static void answer_of(struct context *c, int code, uint32_t nr)
{
	struct mk_head h = { .op = MK_ACK, .code = code, .nr = nr };

	/* Close the connection rather than wait for a pager that does not read its answers. */
	if (mk_send(c->sk, &h, NULL, NULL))
		close_fd(&c->sk);
}

static void answer(struct context *c, int code)
{
	answer_of(c, code, 0);
}

/*
 * Refuses a tenant that already has as many contexts as are left for all tenants, so that no tenant
 * takes the last ones. Contexts that an earlier keeper had accepted may stay. *@nr: the number that
 * was too high.
 */
static int check_share(const struct mk_head *h, uint32_t *nr)
{
	uint32_t all = 0, own = 0;

	for (uint32_t i = 0; i < nr_contexts; i++) {
		all += *contexts[i].name != 0;
		own += *contexts[i].name && contexts[i].tenant == h->len;
	}
	*nr = all;
	if (all >= CONTEXTS_MAX)
		return -ENOSPC;
	*nr = own;
	/* older pagers send neither their tenant nor whether an earlier keeper had the context */
	return h->len && h->code != 1 && own >= CONTEXTS_MAX - all ? -EDQUOT : 0;
}

static void begin(struct context *c, const struct mk_head *h)
{
	uint32_t nr = 0;
	int ret = *c->name ? -EINVAL : taken(c, h->name) ? -EEXIST : check_share(h, &nr);

	if (!ret) {
		snprintf(c->name, sizeof(c->name), "%s", h->name);
		c->tenant = h->len;
	}
	answer_of(c, ret, nr);
	if (!*c->name)
		close_fd(&c->sk);
}

/*
 * Keeps the pager's executable open. An upgrade may replace it by a version that cannot continue
 * this context; the open file still can.
 */
static void note_program(struct context *c)
{
	char path[32];

	if (c->exe_pid == c->pid)
		return;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)c->pid);
	close_fd(&c->exe);
	c->exe = open(path, O_PATH | O_CLOEXEC);
	c->exe_pid = c->pid;
}

static void committed(struct context *c)
{
	note_program(c);
	mk_set_free(&c->has);
	c->has = c->next;
	c->next = (struct mk_set){ 0 };
	c->holds = true;
	c->failures = 0;
	answer(c, 0);
}

static int obey(struct context *c, struct mk_packet *p)
{
	int ret;

	if (p->h.op == MK_BEGIN) {
		begin(c, &p->h);
		return 0;
	}
	if (!*c->name) {
		mk_close(p);
		return -EPROTO;
	}
	if (p->h.op == MK_END) {
		mk_set_free(&c->has);
		c->holds = false;
		answer(c, 0);
		close_fd(&c->sk);
		return 0;
	}
	ret = mk_set_add(&c->next, p);
	if (ret == 1)
		committed(c);
	return ret < 0 ? ret : 0;
}

void context_said(struct context *c)
{
	static struct mk_packet p;
	int ret = mk_recv(c->sk, &p);

	if (!ret) { /* the pager has closed its connection, but may still run */
		close_fd(&c->sk);
		return;
	}
	if (ret == 1)
		ret = obey(c, &p);
	if (!ret)
		return;
	/* -EPROTO, or this process may not have so many descriptors */
	keeper_log("%s: a message of its pager is refused: %s", *c->name ? c->name : "somebody",
		   strerror(-ret));
	mk_set_free(&c->next);
	answer(c, ret);
	close_fd(&c->sk);
}

static bool more(const struct context *c)
{
	struct pollfd p = { .fd = c->sk, .events = POLLIN };

	return c->sk >= 0 && poll(&p, 1, 0) == 1;
}

void context_died(struct context *c)
{
	uint64_t wait;

	while (more(c)) /* the pager has exited: read what it sent before */
		context_said(c);
	close_fd(&c->sk);
	close_fd(&c->pidfd);
	mk_set_free(&c->next);
	if (!c->holds)
		return;
	c->deaths++;
	wait = c->failures ? BACKOFF_NS << zns_min(c->failures - 1, 8u) : 0;
	c->failures++;
	c->start_ns = zns_mono_ns() + zns_min(wait, BACKOFF_MAX_NS);
	keeper_log("%s: its pager has died; the next one is started%s", c->name,
		   wait ? " later" : "");
}
