/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Asks the broker for a restore's lease, with the rate that the broker promises
 * (Documentation/inside/sharing.md).
 */
#include <poll.h>
#include <string.h>
#include "../helper.h"
#include "restore_session.h"

#define WAIT_S 60
/* ms between two tries while it waits for promises to other dumps and restores to end */
#define ASK_MS 100

/*
 * Fills in the rate that the restore asks for, from criu's options. @wait_s: how long it may wait
 * for this promise.
 */
static int ask_for(struct helper *h, const struct zw_begin *b, uint64_t *wait_s,
		   struct zns_err *err)
{
	const char *s = b->admission;

	*wait_s = 0;
	if (b->qos[0] && zns_parse_mibps(b->qos, &h->s.qos_mibps))
		return zns_fail(err, -EINVAL,
				"--zns-qos %s is no bandwidth; write 500, 500MiB/s or 2GiB/s",
				b->qos);
	/*
	 * a file of options may ask for a rate that is meant for dumps: do not ask for more than
	 * the cap
	 */
	if (h->cap_mibps)
		h->s.qos_mibps = zns_min(h->s.qos_mibps, h->cap_mibps);
	if (!s[0] || !strcmp(s, "share"))
		return 0;
	h->s.admission = "reject";
	if (!strcmp(s, "reject"))
		return 0;
	*wait_s = WAIT_S;
	if (!strcmp(s, "wait") ||
	    (!strncmp(s, "wait=", 5) && !zns_parse_number(s + 5, 0, 86400, wait_s)))
		return 0;
	return zns_fail(err, -EINVAL,
			"--zns-admission %s is not known: share, wait[=SECONDS] or reject", s);
}

int restore_lease(struct helper *h, const struct zw_begin *b, const uint8_t *id,
		  ZnsPb__Response **resp, struct zns_err *err)
{
	struct pollfd p = { .fd = h->sk, .events = POLLRDHUP };
	uint64_t wait_s, until;
	int ret = ask_for(h, b, &wait_s, err);

	if (ret)
		return ret;
	until = zns_mono_ns() + wait_s * 1000000000;
	for (;;) {
		ret = zns_session_lease_by(&h->s, id, true, h->weight, resp, err);
		if (ret != -EBUSY || !wait_s)
			return ret;
		if (zns_mono_ns() >= until) {
			struct zns_err why = *err;

			return zns_fail(err, -ETIMEDOUT, "not admitted in %llu s: %s",
					(unsigned long long)wait_s, why.msg);
		}
		if (poll(&p, 1, ASK_MS) > 0 && p.revents & (POLLRDHUP | POLLHUP))
			return zns_fail(err, -EPIPE, "criu has ended");
	}
}
