/* SPDX-License-Identifier: GPL-2.0-only */
/* See include/zns-rpc.h. */
#include <stdio.h>
#include <string.h>

#include "common/compiler.h"
#include "zns-img.h"
#include "zns-opts.h"
#include "zns-rpc.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static int number(int code, protobuf_c_boolean given, uint32_t value)
{
	char text[16];

	if (!given)
		return 0;
	snprintf(text, sizeof(text), "%u", value);
	return zns_parse_opt(code, text);
}

int zns_rpc_opts(const CriuOpts *req)
{
	const CriuZnsOpts *z = req->zns;
	const struct {
		int code;
		const char *value;
	} text[] = {
		{ ZNS_OPT_DEV, z ? z->dev : NULL },
		{ ZNS_OPT_CONTAINER, z ? z->container : NULL },
		{ ZNS_OPT_CHECKPOINT, z ? z->checkpoint : NULL },
		{ ZNS_OPT_ALLOC, z ? z->alloc : NULL },
		{ ZNS_OPT_ADMISSION, z ? z->admission : NULL },
		{ ZNS_OPT_PARENT, z ? z->parent : NULL },
		{ ZNS_OPT_CGROUP, z ? z->cgroup : NULL },
	};
	int i;

	zns_over_rpc = true;
	if (req->has_timeout)
		zns_timeout_given();
	if (!z)
		return 0;
	zns_use();
	for (i = 0; i < ARRAY_SIZE(text); i++) {
		if (text[i].value && zns_parse_opt(text[i].code, text[i].value))
			return -1;
	}
	if (number(ZNS_OPT_QOS, z->has_qos_mibps, z->qos_mibps) ||
	    number(ZNS_OPT_QOS_MAX, z->has_qos_max_mibps, z->qos_max_mibps) ||
	    number(ZNS_OPT_WEIGHT, z->has_weight, z->weight) ||
	    number(ZNS_OPT_STRIPE, z->has_stripe_bytes, z->stripe_bytes))
		return -1;
	if (z->live && zns_parse_opt(ZNS_OPT_LIVE, z->live))
		return -1;
	if (z->live_slow && zns_parse_opt(ZNS_OPT_LIVE_SLOW, z->live_slow))
		return -1;
	return z->separate_metadata ? zns_parse_opt(ZNS_OPT_SEPARATE, NULL) : 0;
}

bool zns_err_first(const char *said, const char *msg)
{
	const char tag[] = "): zns: ";

	return strstr(msg, tag) && (!said || (*said && !strstr(said, tag)));
}

void zns_rpc_features(const CriuFeatures *asked, CriuFeatures *answer)
{
	/* runc asks this before a pre-dump */
	if (asked->has_mem_track && asked->mem_track && !answer->mem_track)
		answer->mem_track = zns_check_tracks();
	if (!asked->has_zns || !asked->zns)
		return;
	answer->has_zns = 1;
	answer->zns = !zns_check_feature();
}
