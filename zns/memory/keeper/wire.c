/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets between pagers and the keeper: see wire.h. */
#include <stddef.h>
#include <string.h>
#include "wire.h"
#include "zns/packet.h"

int mk_send(int sk, const struct mk_head *h, const void *data, const int *fds)
{
	struct mk_head out = *h;
	const struct iovec iov[2] = { { &out, sizeof(out) }, { (void *)data, data ? h->len : 0 } };

	out.version = MK_VERSION;
	return zns_packet_send(sk, iov, 2, fds, fds ? h->nr : 0);
}

void mk_close(struct mk_packet *p)
{
	while (p->nr_fds)
		close(p->fds[--p->nr_fds]);
}

static bool fits(const struct mk_packet *p, size_t len)
{
	const struct mk_head *h = &p->h;

	if (len < sizeof(*h) || h->version != MK_VERSION)
		return false;
	if (len - sizeof(*h) != (h->op == MK_DATA ? h->len : 0) ||
	    p->nr_fds != (h->op == MK_FDS ? h->nr : 0))
		return false;
	switch (h->op) {
	case MK_BEGIN:
		return memchr(h->name, 0, sizeof(h->name)) && !zns_check_memory(h->name, NULL);
	case MK_SET:
		return h->nr <= ZNS_MEMKEEP_FDS_MAX && h->len <= ZNS_MEMKEEP_DATA_MAX;
	case MK_DATA:
		return h->len > 0;
	case MK_FDS:
		return h->nr > 0;
	case MK_COMMIT:
	case MK_ACK:
	case MK_END:
		return true;
	}
	return false;
}

int mk_recv(int sk, struct mk_packet *p)
{
	const struct iovec iov[2] = { { &p->h, sizeof(p->h) }, { p->data, sizeof(p->data) } };
	int n = zns_packet_recv(sk, iov, 2, p->fds, MK_CHUNK_FDS, &p->nr_fds);

	if (n <= 0)
		return n;
	if (fits(p, (size_t)n))
		return 1;
	mk_close(p);
	return -EPROTO;
}

int mk_send_set(int sk, const void *data, size_t len, const int *fds, uint32_t nr)
{
	struct mk_head h = { .op = MK_SET, .nr = nr, .len = (uint32_t)len };
	int ret = mk_send(sk, &h, NULL, NULL);

	for (size_t at = 0; !ret && at < len; at += h.len) {
		h = (struct mk_head){ .op = MK_DATA,
				      .len = (uint32_t)zns_min(len - at, (size_t)MK_CHUNK) };
		ret = mk_send(sk, &h, (const uint8_t *)data + at, NULL);
	}
	for (uint32_t at = 0; !ret && at < nr; at += h.nr) {
		h = (struct mk_head){ .op = MK_FDS, .nr = zns_min(nr - at, MK_CHUNK_FDS) };
		ret = mk_send(sk, &h, NULL, fds + at);
	}
	h = (struct mk_head){ .op = MK_COMMIT };
	return ret ? ret : mk_send(sk, &h, NULL, NULL);
}

void mk_set_free(struct mk_set *s)
{
	while (s->has_nr)
		close(s->fds[--s->has_nr]);
	free(s->fds);
	free(s->data);
	*s = (struct mk_set){ 0 };
}

static int announce(struct mk_set *s, const struct mk_head *h)
{
	mk_set_free(s);
	s->data = malloc(h->len + 1);
	s->fds = calloc(h->nr + 1, sizeof(*s->fds));
	if (!s->data || !s->fds) {
		mk_set_free(s);
		return -ENOMEM;
	}
	s->len = h->len;
	s->nr = h->nr;
	return 0;
}

int mk_set_add(struct mk_set *s, struct mk_packet *p)
{
	const struct mk_head *h = &p->h;

	if (h->op == MK_SET)
		return announce(s, h);
	if (h->op == MK_DATA && s->data && h->len <= s->len - s->has_len) {
		memcpy(s->data + s->has_len, p->data, h->len);
		s->has_len += h->len;
		return 0;
	}
	if (h->op == MK_FDS && s->fds && p->nr_fds <= s->nr - s->has_nr) {
		memcpy(s->fds + s->has_nr, p->fds, p->nr_fds * sizeof(*p->fds));
		s->has_nr += p->nr_fds;
		p->nr_fds = 0;
		return 0;
	}
	if (h->op == MK_COMMIT && s->data && s->has_len == s->len && s->has_nr == s->nr)
		return 1;
	mk_close(p);
	mk_set_free(s);
	return -EPROTO;
}
