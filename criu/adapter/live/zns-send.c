/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends pages to a page server, with the helper as the tracker: the helper says which pages were
 * written since the round before, and reads them. criu sends them, since it owns the connection
 * (and its TLS). See zns-send.h.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cr_options.h"
#include "crtools.h"
#include "image.h"
#include "kerndat.h"
#include "log.h"
#include "page-xfer.h"
#include "pagemap.h"
#include "pid.h"
#include "pstree.h"
#include "stats.h"
#include "tls.h"
#include "util.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-opts.h"
#include "zns-send.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* s; a page server that is silent for this long is given up, since tasks may be frozen meanwhile */
#define DEAD_S 20

/* memory for pages, shared with the helper; NULL: the helper does not track */
static struct zw_chunk *chunk;
static bool late; /* a pre-dump, whose pages are sent after the thaw */

bool zns_sends(void)
{
	return chunk;
}

/*
 * Asks the page server who it is. 1: it is ours, and *ids has its checkpoint and parent; 0: it is
 * another program; -1: an error was printed.
 */
static int ask_server(struct zw_send *ids)
{
	uint8_t *out = (uint8_t *)ids;
	int n, bit, word = check_parent_page_xfer(CR_FD_PAGEMAP, ZNS_WHO);

	memset(ids, 0, sizeof(*ids));
	if (word != ZNS_WHO_IS_ZNS)
		return word < 0 ? -1 : 0;
	for (n = 0; n < ZNS_WHO_WORDS; n++) {
		word = check_parent_page_xfer(CR_FD_PAGEMAP, ZNS_WHO + 1 + n);
		if (word < 0)
			return -1;
		for (bit = n * ZNS_WHO_BITS;
		     bit < (n + 1) * ZNS_WHO_BITS && bit < (int)sizeof(*ids) * 8; bit++)
			if (word >> (bit - n * ZNS_WHO_BITS) & 1)
				out[bit / 8] |= 1 << bit % 8;
	}
	return 1;
}

static int map_chunks(int fd)
{
	void *p = fd < 0 ? MAP_FAILED :
			   mmap(NULL, ZW_CHUNKS * sizeof(*chunk), PROT_READ, MAP_SHARED, fd, 0);

	close_safe(&fd);
	if (p == MAP_FAILED) {
		pr_err("No memory for pages on their way\n");
		return -1;
	}
	chunk = p;
	return 0;
}

/*
 * Asks the helper to track. 0: it does; 1: it does not, and @why has the reason; -1: an error was
 * printed.
 */
static int begin(struct zns_msg *m, const char **why)
{
	static struct zw_reply r;
	int fd;

	if (zns_link_start() || (zns_opts_timeout && zns_link_limit(opts.timeout)))
		return -1;
	if (zns_ask(m, &r, &fd)) {
		zns_pr_err("%s\n", r.msg);
		close_safe(&fd);
		zns_link_close();
		return -1;
	}
	if (r.kind == ZW_KIND_NONE) {
		*why = r.msg;
		zns_link_close();
		return 1;
	}
	if (map_chunks(fd)) {
		zns_link_close();
		return -1;
	}
	pr_info("%s\n", r.msg);
	return 0;
}

int zns_send_begin(bool pre_dump)
{
	const char *why = "this is no page server into zones, and does not say which pages it has";
	bool keep = pre_dump || opts.final_state != TASK_DEAD;
	struct zns_msg m = ZNS_MSG(ZW_SEND_BEGIN);
	struct zw_send ids;
	int ret;

	if (!opts.track_mem || opts.lazy_pages)
		return 0;
	ret = ask_server(&ids);
	if (ret < 0)
		return -1;
	m.h.pid = root_item->pid->real;
	m.h.nr = ZW_ROUNDS_TRACK | (keep ? ZW_ROUNDS_KEEP : 0);
	m.h.nr |= pre_dump ? ZW_ROUNDS_COPY | ZW_ROUNDS_SMAPS : 0;
	m.payload = &ids;
	m.len = sizeof(ids);
	ret = ret ? begin(&m, &why) : 1;
	if (!ret && pre_dump)
		zns_live_has_smaps();
	late = pre_dump;
	if (ret <= 0 || kdat.has_dirty_track)
		return ret < 0 ? -1 : 0;
	if (pre_dump) {
		pr_err("pre-dump needs a kernel that tracks changed memory, and this one does not: make a full dump (criu dump); "
		       "%s\n",
		       why);
		return -1;
	}
	pr_warn("Memory is sent in full: %s\n", why);
	return 0;
}

/* ---- pages ---- */

/*
 * Limits how long a connection may be silent. The page server's host may have vanished, and tasks
 * must not wait for it longer.
 */
int zns_limit_silence(int sk)
{
	int on = 1, idle_s = 5, every_s = 5, tries = (DEAD_S - 5) / 5, dead_ms = DEAD_S * 1000;

	if (sk >= 0 && (setsockopt(sk, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) ||
			setsockopt(sk, SOL_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) ||
			setsockopt(sk, SOL_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s)) ||
			setsockopt(sk, SOL_TCP, TCP_KEEPCNT, &tries, sizeof(tries)) ||
			setsockopt(sk, SOL_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms))))
		pr_info("A page server that is gone without a word will be waited for\n");
	return 0;
}

static int send_all(const uint8_t *buf, size_t len)
{
	while (len) {
		ssize_t n = tls_send(buf, len, 0);

		if (n <= 0) {
			pr_perror("Can't write pages to socket");
			return -1;
		}
		buf += n;
		len -= n;
	}
	return 0;
}

#define IOVS 1024 /* entries of one sendmsg(); a run of pages takes two */

/*
 * A header of page-xfer.c's protocol. Here many runs are sent at once, while page-xfer.c makes two
 * calls for each run.
 */
struct ps_iov {
	uint32_t cmd;
	uint64_t nr_pages, vaddr, dst_id;
};
#define PS_IOV_ADD_F 6
#define PS_CMD_BITS 16

static int send_iov(int sk, struct iovec *v, int nr)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = nr };

	while (m.msg_iovlen) {
		ssize_t n = sendmsg(sk, &m, MSG_NOSIGNAL);

		if (n <= 0) {
			pr_perror("Can't write pages to socket");
			return -1;
		}
		for (; m.msg_iovlen && (size_t)n >= m.msg_iov->iov_len; m.msg_iov++, m.msg_iovlen--)
			n -= m.msg_iov->iov_len;
		if (m.msg_iovlen) {
			m.msg_iov->iov_base += n;
			m.msg_iov->iov_len -= n;
		}
	}
	return 0;
}

static int send_plain(struct page_xfer *xfer, const struct zw_chunk *c, uint32_t nr)
{
	static struct ps_iov head[IOVS / 2];
	static struct iovec v[IOVS];
	const uint8_t *at = c->data;
	uint32_t i, n, k;

	for (i = 0; i < nr; i += n) {
		for (n = 0, k = 0; n < IOVS / 2 && i + n < nr; n++) {
			const struct zw_run *r = &c->run[i + n];
			uint32_t flags = r->parent ? PE_PARENT : PE_PRESENT;

			head[n] = (struct ps_iov){ flags << PS_CMD_BITS | PS_IOV_ADD_F,
						   r->len / PAGE_SIZE, r->vaddr, xfer->dst_id };
			v[k++] = (struct iovec){ &head[n], sizeof(head[n]) };
			if (r->parent)
				continue;
			v[k++] = (struct iovec){ (void *)at, r->len };
			at += r->len;
		}
		if (send_iov(xfer->sk, v, k))
			return -1;
	}
	return 0;
}

static int send_chunk(struct page_xfer *xfer, const struct zw_chunk *c, uint32_t nr)
{
	const uint8_t *at = c->data;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		const struct zw_run *r = &c->run[i];
		struct iovec iov = { (void *)(uintptr_t)r->vaddr, r->len };

		cnt_add(r->parent ? CNT_PAGES_SKIPPED_PARENT : CNT_PAGES_WRITTEN,
			r->len / PAGE_SIZE);
		if (!opts.tls)
			continue;
		if (xfer->write_pagemap(xfer, &iov, r->parent ? PE_PARENT : PE_PRESENT))
			return -1;
		if (r->parent)
			continue;
		if (send_all(at, r->len))
			return -1;
		at += r->len;
	}
	return opts.tls ? 0 : send_plain(xfer, c, nr);
}

/* Requests the next chunk. Returns the socket for zns_recv_reply(). */
static int ask_chunk(pid_t pid, uint32_t n)
{
	struct zns_msg m = ZNS_MSG(ZW_SEND_PAGES);
	struct zw_reply r;
	int sk;

	m.h.pid = pid;
	m.h.image = n;
	sk = zns_ask_begin(&m, &r);
	if (sk < 0)
		zns_pr_err("%s\n", r.msg);
	return sk;
}

static int take_chunk(int *sk, struct zw_reply *r)
{
	int ret = *sk < 0 ? -1 : zns_recv_reply(*sk, r, NULL);

	if (ret && *sk >= 0)
		zns_pr_err("%s\n", r->msg);
	close_safe(sk);
	return ret ? -1 : 0;
}

/*
 * Sends all chunks; the helper fills one while the other is being sent. @r: the answer with the
 * first chunk.
 */
static int send_chunks(struct page_xfer *xfer, pid_t pid, struct zw_reply *r)
{
	int sk, ret = 0;
	uint32_t n;

	for (n = 0; !ret && r->size; n = !n) {
		uint32_t nr = r->size;

		sk = ask_chunk(pid, !n);
		ret = sk < 0 || nr > ZW_CHUNK_RUNS ? -1 : send_chunk(xfer, &chunk[n], nr);
		if (take_chunk(&sk, r))
			ret = -1;
	}
	return ret;
}

int zns_send_pages(struct pstree_item *item)
{
	struct page_xfer xfer;
	struct zw_reply r;
	int ret, sk;

	if (!chunk)
		return 0;
	sk = ask_chunk(item->pid->real, 0);
	if (take_chunk(&sk, &r))
		return -1;
	if (r.kind == ZW_KIND_NONE)
		return 0;
	timing_start(TIME_MEMWRITE);
	ret = open_page_xfer(&xfer, CR_FD_PAGEMAP, vpid(item));
	if (ret < 0)
		return -1;
	ret = send_chunks(&xfer, item->pid->real, &r);
	xfer.close(&xfer);
	timing_stop(TIME_MEMWRITE);
	return ret;
}

bool zns_send_failed(int ret)
{
	static bool failed;

	return failed |= ret != 0;
}

bool zns_send_task(struct pstree_item *item, struct vm_area_list *vmas, int *ret)
{
	struct zw_reply r;

	*ret = zns_live_final(item, vmas, &r);
	if (*ret)
		return true;
	if (r.kind == ZW_KIND_NONE)
		return false;
	*ret = late ? 0 : zns_send_pages(item);
	return true;
}

int zns_send_end(int failed)
{
	struct zns_msg m = ZNS_MSG(ZW_SEND_DONE);
	struct zw_reply r;

	/* if only the tracker fails here, the pages were sent */
	if (!failed && zns_ask(&m, &r, NULL))
		pr_warn("%s: the next round is a full one\n", r.msg);
	zns_link_close();
	munmap(chunk, ZW_CHUNKS * sizeof(*chunk));
	chunk = NULL;
	return failed;
}
