/* SPDX-License-Identifier: GPL-2.0-only */
/* A network namespace in the freeze: its lock, and its tracked connections. See
 * include/zns-freeze.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#if defined(CONFIG_HAS_NFTABLES_LIB_API_0) || defined(CONFIG_HAS_NFTABLES_LIB_API_1)
#include <nftables/libnftables.h>
#endif

#include "cr_options.h"
#include "kerndat.h"
#include "log.h"
#include "netfilter.h"
#include "util.h"
#include "zns-freeze.h"
#include "zns-img.h"
#include "zns-session.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static int (*rest)(void); /* of the unlock, to be called after the thaw */
static int rest_netns = -1;

#if defined(CONFIG_HAS_NFTABLES_LIB_API_0) || defined(CONFIG_HAS_NFTABLES_LIB_API_1)
static struct nft_ctx *nft;

/*
 * Where iptables is the one on nftables, the lock is a chain that the filter's chains jump to
 * first. Without its rules all packets go on as before the lock. It is one transaction, for both
 * families or for none. Only the socket's close waits until no packet can be among the old rules:
 * the context lives until after the thaw.
 */
static int let_through(void)
{
	char flush[] = "flush chain ip filter CRIU; flush chain ip6 filter CRIU";
	int ret;

	if (!kdat.ipv6)
		*strchr(flush, ';') = '\0';
	nft = nft_ctx_new(NFT_CTX_DEFAULT);
	if (!nft)
		return -1;
	/* An error is no error here: the chain may be the old iptables'. */
	nft_ctx_buffer_error(nft);
	ret = NFT_RUN_CMD(nft, flush);
	return ret ? -1 : 0;
}

static void end_let_through(void)
{
	if (nft)
		nft_ctx_free(nft);
	nft = NULL;
}
#else
static int let_through(void)
{
	return -1;
}

static void end_let_through(void)
{
}
#endif

int zns_netlock_end(int (*unlock)(void))
{
	if (zns_state() == ZNS_DUMP && rest_netns < 0) {
		rest_netns = open_proc(PROC_SELF, "ns/net");
		if (rest_netns >= 0 && !let_through()) {
			rest = unlock;
			return 0;
		}
		end_let_through();
		close_safe(&rest_netns);
	}
	return unlock();
}

/* The namespace may have no task any more: what is left of the lock is removed all the same. */
void zns_netlock_finish(void)
{
	int own;

	if (rest_netns < 0)
		return;
	end_let_through();
	own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own < 0 || setns(rest_netns, CLONE_NEWNET)) {
		pr_perror("The empty chain CRIU of the network's lock cannot be removed");
	} else {
		rest();
		if (setns(own, CLONE_NEWNET))
			pr_perror("Can't go back to criu's network namespace");
	}
	close_safe(&own);
	close_safe(&rest_netns);
}

/* The number in a reply to IPCTNL_MSG_CT_GET_STATS. -1: none is there. */
static long long nr_entries(const char *reply, ssize_t len)
{
	const struct nlmsghdr *h = (const void *)reply;
	const struct nlattr *a;
	size_t at;

	if (len < (ssize_t)NLMSG_LENGTH(sizeof(struct nfgenmsg)) || h->nlmsg_len > (size_t)len ||
	    h->nlmsg_type != (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET_STATS))
		return -1;
	for (at = NLMSG_SPACE(sizeof(struct nfgenmsg)); at + sizeof(*a) <= h->nlmsg_len;
	     at += NLMSG_ALIGN(a->nla_len)) {
		a = (const void *)(reply + at);
		if (a->nla_len < sizeof(*a) || at + a->nla_len > h->nlmsg_len)
			break;
		if ((a->nla_type & NLA_TYPE_MASK) == CTA_STATS_GLOBAL_ENTRIES &&
		    a->nla_len == sizeof(*a) + sizeof(uint32_t))
			return ntohl(*(const uint32_t *)(a + 1));
	}
	return -1;
}

bool zns_no_conntrack(void)
{
	struct {
		struct nlmsghdr h;
		struct nfgenmsg g;
	} ask = {
		.h = { .nlmsg_len = sizeof(ask),
		       .nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET_STATS,
		       .nlmsg_flags = NLM_F_REQUEST },
		.g = { .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0 },
	};
	char reply[1024] __attribute__((aligned(8)));
	long long nr = -1;
	int sk;

	if (!zns_active())
		return false;
	sk = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (sk < 0)
		return false;
	if (send(sk, &ask, sizeof(ask), 0) == sizeof(ask))
		nr = nr_entries(reply, recv(sk, reply, sizeof(reply), 0));
	close(sk);
	return !nr;
}
