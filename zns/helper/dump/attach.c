/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attaches the helper to a device: connects to the broker, takes the life lock, opens the device.
 */
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dump_session.h"
#include "../helper.h"
#include "zns/process.h"

/*
 * Drops the capabilities that only the start needed. Documentation/user/security.md lists those
 * that stay.
 */
static int drop_rights(const struct zns_registered *reg, bool live, struct zns_err *err)
{
	static const int keep[] = { CAP_SYS_PTRACE, CAP_DAC_OVERRIDE, CAP_FOWNER,   CAP_IPC_LOCK,
				    CAP_SYS_NICE,   CAP_SYS_RESOURCE, CAP_SYS_ADMIN };
	/*
	 * CAP_SYS_ADMIN, the last of the list, is needed for commands to a drive, and for a live
	 * dump, which suspends a container's seccomp filter.
	 */
	bool without = zns_spec_in_file(reg->path) && !live;

	return zns_process_keep_caps(keep, ZNS_ARRAY_SIZE(keep) - without, err);
}

/*
 * Sends a request to the broker, one thread at a time. After a time-out the connection cannot be
 * used again: the late answer would be taken for the answer to the next request.
 */
static int ask(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	struct helper *h = arg;
	int ret;

	pthread_mutex_lock(&h->broker_lock);
	if (h->broker_lost)
		ret = zns_fail(err, -ETIMEDOUT, "%s", h->broker_err.msg);
	else
		ret = zns_broker_call(&h->s.broker, req, resp, err);
	if (ret == -ETIMEDOUT && !h->broker_lost) {
		h->broker_lost = true;
		if (err)
			h->broker_err = *err;
		else
			zns_fail(&h->broker_err, ret,
				 "the broker (PID %u) did not answer an earlier request",
				 h->s.broker.broker_pid);
	}
	pthread_mutex_unlock(&h->broker_lock);
	return ret;
}

int helper_attach(struct helper *h, const struct zns_registered *reg, const struct dump *writer,
		  struct zns_err *err)
{
	struct stat st;
	int ret = 0;

	h->s.ask = ask;
	h->s.ask_arg = h;
	/* A limit on file sizes (RLIMIT_FSIZE) would make writes to every zone fail. */
	if (writer && zns_spec_in_file(reg->path) && !stat(zns_spec_path(reg->path), &st))
		ret = zns_process_file_limit((uint64_t)st.st_size, err);
	if (!ret)
		ret = zns_session_open(&h->s, reg, writer ? ZNS_WRITES : ZNS_READS, err);
	return ret ? ret : drop_rights(reg, writer && writer->live, err);
}

void helper_set_rate(struct helper *h, uint32_t mibps)
{
	zns_bucket_set(h->bucket,
		       h->cap_mibps && (!mibps || h->cap_mibps < mibps) ? h->cap_mibps : mibps);
}

int helper_cap(struct helper *h, const struct zw_begin *b, struct zns_err *err)
{
	uint64_t weight = 0;

	if (b->qos_max[0] && zns_parse_mibps(b->qos_max, &h->cap_mibps))
		return zns_fail(err, -EINVAL,
				"--zns-qos-max %s is no bandwidth; write 500, 500MiB/s or 2GiB/s",
				b->qos_max);
	if (b->weight[0] && zns_parse_number(b->weight, ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX, &weight))
		return zns_fail(err, -EINVAL, "--zns-weight %s is no weight: %u to %u", b->weight,
				ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX);
	h->weight = (uint32_t)weight;
	h->bucket = zns_bucket_new();
	if (!h->bucket)
		return zns_fail(err, -ENOMEM, "no memory for a token bucket");
	helper_set_rate(h, 0);
	return 0;
}
