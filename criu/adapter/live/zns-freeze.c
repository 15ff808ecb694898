/* SPDX-License-Identifier: GPL-2.0-only */
/* Shortens waits during a freeze that are not necessary. See include/zns-freeze.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cr_options.h"
#include "kerndat.h"
#include "linux/mount.h"
#include "util.h"
#include "zns-freeze.h"
#include "zns-state.h"

#ifndef FSMOUNT_CLOEXEC
#define FSMOUNT_CLOEXEC 1
#endif
#define LOOK_NS 1000000 /* ns between two checks */
#define NS_PER_S 1000000000ll

static int cgroup2 = -1; /* a mount of cgroup v2 that is not attached to any directory; -1: none */

/* Does the file contain this text? (Only its first 255 bytes are read; the files are shorter.) */
static bool says(int fd, const char *word)
{
	char text[256];
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);

	text[len < 0 ? 0 : len] = '\0';
	return strstr(text, word);
}

/*
 * Is the cgroup still freezing? In cgroup v1 the state file says so. In v2 it only repeats the
 * request, so cgroup.events is read.
 */
static bool freezing(int fd)
{
	char path[PATH_MAX];
	bool found;
	int events;

	if (says(fd, "FREEZING"))
		return true;
	snprintf(path, sizeof(path), "%s/cgroup.events", opts.freeze_cgroup);
	events = open(path, O_RDONLY | O_CLOEXEC);
	if (events < 0)
		return false;
	found = says(events, "frozen 0");
	close(events);
	return found;
}

void zns_wait_frozen(int fd, const struct timespec *longest)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	long long left_ns = longest->tv_sec * NS_PER_S + longest->tv_nsec;

	do {
		nanosleep(&look, NULL);
		left_ns -= LOOK_NS;
	} while (left_ns > 0 && freezing(fd));
}

static void note_time(int how)
{
	const char *path = secure_getenv("ZNS_FROZEN_NOTE");
	struct timespec now;
	int fd;

	if (!path)
		return;
	/* not the coarse clock: the kernel uses finer times for some files */
	clock_gettime(CLOCK_REALTIME, &now);
	fd = open(path, O_WRONLY | how | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "%lld\n", now.tv_sec * NS_PER_S + now.tv_nsec) < 0)
		pr_warn("Can't note when the tasks were frozen: %s: %s\n", path, strerror(errno));
	close_safe(&fd);
}

void zns_dump_frozen(void)
{
	note_time(O_TRUNC);
}

void zns_dump_taken(void)
{
	note_time(O_APPEND);
}

/* Is the task in the same cgroups as criu? criu opens cgroups only for other tasks. */
static bool in_our_cgroups(pid_t pid)
{
	char path[32], text[2][4096];
	ssize_t len[2];
	int i, fd;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/cgroup", i ? pid : getpid());
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return false;
		len[i] = read(fd, text[i], sizeof(text[i]));
		close(fd);
	}
	return len[0] > 0 && len[0] == len[1] && len[0] < (ssize_t)sizeof(text[0]) &&
	       !memcmp(text[0], text[1], len[0]);
}

/*
 * Mounts cgroup v2 before the freeze: each mount of it waits for an RCU grace period (10 ms),
 * because it sets the options of the hierarchy. Mounts of v1 do not wait.
 */
void zns_cgroup2_open(pid_t pid)
{
	int fs;

	if (!opts.manage_cgroups || opts.cgroup_yard || !kdat.has_fsopen || cgroup2 >= 0 ||
	    in_our_cgroups(pid))
		return;
	fs = cr_fsopen("cgroup2", FSOPEN_CLOEXEC);
	if (fs < 0)
		return;
	if (!cr_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		cgroup2 = cr_fsmount(fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
}

int zns_cgroup2_fd(void)
{
	return cgroup2 < 0 ? -1 : fcntl(cgroup2, F_DUPFD_CLOEXEC, 0);
}

void zns_cgroup2_close(void)
{
	close_safe(&cgroup2);
}

/* Returns the number in a reply to IPCTNL_MSG_CT_GET_STATS. -1: the reply has none. */
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

/* Runs each program of iptables to get its version, before the freeze. criu keeps the answers. */
void zns_find_iptables(pid_t pid)
{
	struct stat ours, theirs;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat("/proc/self/ns/net", &ours) || stat(path, &theirs) ||
	    (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev))
		return;
	get_legacy_iptables_bin(false, false);
	if (kdat.ipv6)
		get_legacy_iptables_bin(true, false);
}

/*
 * Does the file that lists the kernel's tables name none, or not exist? Then iptables-legacy-save
 * would print nothing.
 */
bool zns_no_tables(bool ipv6)
{
	const char *path = ipv6 ? "/proc/thread-self/net/ip6_tables_names" :
				  "/proc/thread-self/net/ip_tables_names";
	char name;
	ssize_t len;
	int fd;

	if (!zns_active() || getenv("CR_IPTABLES")) /* $CR_IPTABLES may name another program */
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	len = read(fd, &name, sizeof(name));
	close(fd);
	return !len;
}
