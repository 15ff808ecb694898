/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets between helpers and keepers, and the addresses of keepers' sockets. */
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include "keep.h"
#include "zns/packet.h"

#define SENT offsetof(struct keep_packet, fd)
#define SPANS_MAX (1u << 26)

int keep_send(int sk, struct keep_packet *p)
{
	const struct iovec iov = { p, SENT };

	p->version = KEEP_VERSION;
	return zns_packet_send(sk, &iov, 1, p->fd, p->nr_fd);
}

int keep_recv(int sk, struct keep_packet *p)
{
	const struct iovec iov = { p, SENT };
	uint32_t nr;
	int n;

	*p = (struct keep_packet){ 0 };
	n = zns_packet_recv(sk, &iov, 1, p->fd, KEEP_FDS, &nr);
	if (n <= 0)
		return n;
	p->nr_fd = nr;
	if (n == SENT && p->version == KEEP_VERSION && nr == (p->op == KEEP_TASK ? KEEP_FDS : 0))
		return 1;
	keep_close(p);
	return -EPROTO;
}

void keep_close(struct keep_packet *p)
{
	for (uint32_t i = 0; i < p->nr_fd; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	p->nr_fd = 0;
}

static int read_spans(int fd, uint64_t nr, uint64_t at, struct zns_spans *out)
{
	uint64_t end = 0;
	int ret;

	zns_spans_free(out);
	out->s = malloc((nr + 1) * sizeof(*out->s));
	if (!out->s)
		return -ENOMEM;
	out->nr = out->max = nr;
	ret = zns_pread_all(fd, out->s, nr * sizeof(*out->s), (off_t)at);
	for (uint64_t n = 0; n < nr && !ret; n++) {
		if (out->s[n].start < end || out->s[n].end <= out->s[n].start)
			ret = -EPROTO;
		end = out->s[n].end;
	}
	return ret;
}

int keep_read_pages(int fd, char pagemap[64], struct zns_spans *pages, struct zns_spans *areas)
{
	struct keep_pages h;
	struct stat st;
	int ret = zns_pread_all(fd, &h, sizeof(h), 0);

	if (ret || fstat(fd, &st) || h.nr > SPANS_MAX || h.nr_areas > SPANS_MAX ||
	    (uint64_t)st.st_size != sizeof(h) + (h.nr + h.nr_areas) * sizeof(struct zns_span))
		return -EPROTO;
	h.pagemap[sizeof(h.pagemap) - 1] = '\0';
	memcpy(pagemap, h.pagemap, sizeof(h.pagemap));
	ret = read_spans(fd, h.nr, sizeof(h), pages);
	if (!ret)
		ret = read_spans(fd, h.nr_areas, sizeof(h) + h.nr * sizeof(struct zns_span), areas);
	if (ret) {
		zns_spans_free(pages);
		zns_spans_free(areas);
	}
	return ret;
}

void keep_timeouts(int sk)
{
	zns_packet_timeouts(sk, KEEP_TIMEOUT_S);
}

int keep_dir(struct zns_err *err)
{
	return zns_run_subdir("keep", err);
}

void keep_address(int dir, const char *name, struct sockaddr_un *a)
{
	zns_run_address(dir, name, a);
}

void keep_name(const uint8_t id[ZNS_UUID_LEN], char out[64])
{
	char text[ZNS_UUID_STR];

	snprintf(out, 64, "%s.sock", zns_uuid_format(id, text));
}
