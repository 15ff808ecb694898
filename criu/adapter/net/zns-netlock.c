/* SPDX-License-Identifier: GPL-2.0-only */
/* Locks the network during a dump. See include/zns-netlock.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(CONFIG_HAS_NFTABLES_LIB_API_0) || defined(CONFIG_HAS_NFTABLES_LIB_API_1)
#include <nftables/libnftables.h>
#else
struct nft_ctx;
#endif

#include "../soccr/soccr.h"
#include "cr_options.h"
#include "kerndat.h"
#include "log.h"
#include "netfilter.h"
#include "pstree.h"
#include "sk-inet.h"
#include "util.h"
#include "zns-netlock.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

/* criu cuts the table's name to this length, and a restore looks for the shortened name. */
#define TABLE_MAX 32
/* bytes for two elements of a set: a connection as seen from both of its ends */
#define CONN_MAX 256

static enum {
	CRIUS, /* criu's own lock is used: the dump is not into zones, or not with nftables */
	NOTHING, /* nothing is locked yet */
	WHOLE, /* the whole namespace is locked */
	CONNS, /* single connections are locked */
} lock;

static bool given, by_iptables;
static char table[TABLE_MAX];
/* nftables context in the task's network namespace. NULL: nothing will be locked */
static struct nft_ctx *nft;

/* Connections of the locked namespace, for IPv4 and IPv6: elements of the sets, as text. */
static struct {
	char *text;
	size_t len, room;
} conns[2];

void zns_netlock_given(void)
{
	given = true;
}

#if defined(CONFIG_HAS_NFTABLES_LIB_API_0) || defined(CONFIG_HAS_NFTABLES_LIB_API_1)
static struct nft_ctx *nft_open(void)
{
	struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);

	if (ctx)
		nft_ctx_buffer_error(ctx);
	return ctx;
}

static void nft_close(void)
{
	if (nft)
		nft_ctx_free(nft);
	nft = NULL;
}

/*
 * Runs all commands of @text as one transaction. (`create table` would accept a block, but ignore
 * it.)
 */
static int run(struct nft_ctx *ctx, const char *text)
{
	if (!ctx || NFT_RUN_CMD(ctx, text)) {
		pr_err("nftables: %s\n", ctx ? nft_ctx_get_error_buffer(ctx) : "no context");
		return -1;
	}
	return 0;
}
#else
static struct nft_ctx *nft_open(void)
{
	return NULL;
}

static void nft_close(void)
{
}

static int run(struct nft_ctx *ctx, const char *text)
{
	return -1;
}
#endif

static int delete_table(struct nft_ctx *ctx)
{
	char text[TABLE_MAX + 16];

	snprintf(text, sizeof(text), "delete table %s", table);
	return run(ctx, text);
}

/*
 * Removes the lock. Runs in the watcher, in the task's network namespace. With iptables all dumps
 * share one chain: it is kept as long as the rule of another dump jumps to it.
 */
static void lift(void)
{
	static char rules[] =
		"for t in iptables ip6tables; do $t -w -D INPUT -j CRIU; $t -w -D OUTPUT -j CRIU; "
		"$t -w -C INPUT -j CRIU || { $t -w -F CRIU; $t -w -X CRIU; }; done";

	if (by_iptables)
		execlp("sh", "sh", "-c", rules, NULL);
	else
		delete_table(nft_open());
}

void zns_netlock_choose(void)
{
	if (!given && kdat.has_nftables_concat)
		opts.network_lock_method = NETWORK_LOCK_NFTABLES;
}

/*
 * Opens the context before the freeze. Closing its socket waits for an RCU grace period, so that is
 * left to the end.
 */
static int open_there(int netns, int own, bool same)
{
	if (!same && setns(netns, CLONE_NEWNET)) {
		pr_perror("Can't enter the network namespace of the task");
		return -1;
	}
	nft = nft_open();
	if (!same && setns(own, CLONE_NEWNET)) {
		pr_perror("Can't go back to criu's network namespace");
		return -1;
	}
	return nft ? 0 : -1;
}

int zns_netlock_begin(pid_t pid)
{
	int netns, own, ret = -1;
	struct stat of_task, of_us;
	bool same;

	if (opts.network_lock_method == NETWORK_LOCK_SKIP)
		return 0;
	by_iptables = opts.network_lock_method == NETWORK_LOCK_IPTABLES;
	netns = open_proc(pid, "ns/net");
	own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (netns < 0 || own < 0 || fstat(netns, &of_task) || fstat(own, &of_us))
		goto out;
	same = of_task.st_ino == of_us.st_ino;
	lock = by_iptables ? CRIUS : NOTHING;
	/* if criu is in the same namespace, only the dumped connections are locked */
	ret = 0;
	if (same && (by_iptables || !opts.tcp_established_ok))
		goto out;
	if (nftables_get_table(table, sizeof(table)) || zns_netwatch_start(netns, lift) ||
	    (!by_iptables && open_there(netns, own, same)))
		ret = -1;
out:
	if (ret)
		pr_err("The lock of the network cannot be prepared\n");
	close_safe(&own);
	close_safe(&netns);
	return ret;
}

#define PASS_OWN "meta mark " __stringify(SOCCR_MARK) " accept"

int zns_netlock_whole(void)
{
	char text[512];

	zns_netwatch_held(true);
	if (lock == CRIUS)
		return 1;
	lock = WHOLE;
	snprintf(text, sizeof(text),
		 "create table %s; table %s { "
		 "chain output { type filter hook output priority 0; policy drop; " PASS_OWN "; }; "
		 "chain input { type filter hook input priority 0; policy drop; " PASS_OWN "; }; }",
		 table, table);
	return run(nft, text);
}

static const char *elements(bool v6)
{
	return conns[v6].len ? conns[v6].text : "";
}

/*
 * Runs the commands @before, then makes a table that drops the packets of the connections in its
 * sets, like criu's own table.
 */
static int lock_conns(const char *before)
{
	static const char form[] =
		"%s create table %s; table %s { "
		"set conns4 { type ipv4_addr . inet_service . ipv4_addr . inet_service; %s%s }; "
		"set conns6 { type ipv6_addr . inet_service . ipv6_addr . inet_service; %s%s }; "
		"chain output { type filter hook output priority 0; " PASS_OWN "; "
		"ip saddr . tcp sport . ip daddr . tcp dport @conns4 drop; "
		"ip6 saddr . tcp sport . ip6 daddr . tcp dport @conns6 drop; }; "
		"chain input { type filter hook input priority 0; " PASS_OWN "; "
		"ip saddr . tcp sport . ip daddr . tcp dport @conns4 drop; "
		"ip6 saddr . tcp sport . ip6 daddr . tcp dport @conns6 drop; }; }";
	char *text;
	int ret;

	if (asprintf(&text, form, before, table, table, elements(false), conns[0].len ? " }" : "",
		     elements(true), conns[1].len ? " }" : "") < 0)
		return -1;
	ret = run(nft, text);
	free(text);
	return ret;
}

int zns_netlock_conns(void)
{
	if (lock == CRIUS)
		return 1;
	if (!nft)
		return 0;
	zns_netwatch_held(true);
	lock = CONNS;
	return lock_conns("");
}

static int conn_text(const struct inet_sk_desc *sk, char *out, bool *v6)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
	const unsigned int *s = sk->src_addr, *d = sk->dst_addr;

	*v6 = sk->sd.family == AF_INET6;
	if (*v6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)d)) {
		*v6 = false;
		s += 3;
		d += 3;
	}
	if (!inet_ntop(*v6 ? AF_INET6 : AF_INET, s, src, sizeof(src)) ||
	    !inet_ntop(*v6 ? AF_INET6 : AF_INET, d, dst, sizeof(dst)) ||
	    snprintf(out, CONN_MAX, "%s . %u . %s . %u, %s . %u . %s . %u", dst, sk->dst_port, src,
		     sk->src_port, src, sk->src_port, dst, sk->dst_port) >= CONN_MAX)
		return -1;
	return 0;
}

static int remember(const char *conn, bool v6)
{
	size_t need = conns[v6].len + strlen(conn) + 32;
	char *more;

	if (need > conns[v6].room) {
		more = realloc(conns[v6].text, 2 * need);
		if (!more)
			return -1;
		conns[v6].text = more;
		conns[v6].room = 2 * need;
	}
	conns[v6].len += sprintf(conns[v6].text + conns[v6].len, "%s%s",
				 conns[v6].len ? ", " : "elements = { ", conn);
	return 0;
}

int zns_netlock_conn(const struct inet_sk_desc *sk)
{
	char conn[CONN_MAX], text[CONN_MAX + 128];
	bool v6;

	zns_netwatch_repairs(sk->rfd);
	if (lock == CRIUS)
		return 1;
	if (conn_text(sk, conn, &v6))
		return -1;
	if (lock == WHOLE)
		return remember(conn, v6);
	snprintf(text, sizeof(text), "add element %s conns%c { %s }", table, v6 ? '6' : '4', conn);
	return run(nft, text);
}

int zns_netlock_unlock(void)
{
	int ret;

	if (lock == CRIUS)
		return 1;
	if (lock == NOTHING)
		return 0;
	ret = delete_table(nft);
	lock = NOTHING;
	return ret;
}

/*
 * Restricts the lock that stays until the restore to packets of the dumped connections. Without a
 * lock, the kernel would answer these packets with a reset. More must not be locked, since another
 * container may share the namespace, and there may never be a restore.
 */
static void narrow(void)
{
	char before[TABLE_MAX + 16];

	snprintf(before, sizeof(before), "delete table %s;", table);
	if (conns[0].len || conns[1].len ? lock_conns(before) : delete_table(nft))
		pr_warn("The network stays locked until the restore: nft delete table %s\n", table);
}

/*
 * Writes the table's name, without its family, for zns-runc, which may create the container again.
 */
static void note(void)
{
	const char *path = secure_getenv("ZNS_NETLOCK_NOTE"), *name = strchr(table, ' ');
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (fd >= 0 && write(fd, name + 1, strlen(name + 1)) < 0)
		pr_perror("Can't write %s", path);
	close_safe(&fd);
}

void zns_netlock_finish(void)
{
	bool stays = opts.final_state == TASK_DEAD && lock != CRIUS && lock != NOTHING;

	if (stays && lock == WHOLE)
		narrow();
	if (stays && (lock == CONNS || conns[0].len || conns[1].len))
		note();
	zns_netwatch_end();
	nft_close();
}
