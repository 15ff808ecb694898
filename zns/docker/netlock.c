/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Removes the network lock that a checkpoint leaves behind: until the container is restored,
 * packets of its TCP connections are dropped (criu/adapter/net/zns-netlock.c). criu notes the name
 * of its nftables table in our run directory. A restore deletes the table. A container that is
 * created cold has no connections to protect, so create deletes the table.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "runc.h"
#include "zns/config.h"

#define NOTE "netlock"
#define TABLE_MAX 32 /* most bytes of the name of criu's table, and so of the note */

void netlock_tell(const char *id)
{
	char path[PATH_MAX];

	if (!docker_run_path(id, NOTE, path, sizeof(path), NULL))
		setenv("ZNS_NETLOCK_NOTE", path, 1);
}

void netlock_forget(const char *id)
{
	docker_run_unlink(id, NOTE);
}

/* The network namespace that a bundle names; "": a new one; NULL: the host's. */
static const char *network_of(const struct docker_container *k)
{
	struct json_object *all = zns_json_get(zns_json_get(k->spec, "linux"), "namespaces"), *ns;
	const char *type, *path;

	for (size_t i = 0; i < zns_json_len(all); i++) {
		ns = json_object_array_get_idx(all, i);
		type = zns_json_str(ns, "type");
		path = zns_json_str(ns, "path");
		if (type && !strcmp(type, "network"))
			return path ? path : "";
	}
	return NULL;
}

/* Sends an nftables batch that deletes one table, as netlink messages. */
static int delete_table(const char *table)
{
	struct msg {
		struct nlmsghdr h;
		struct nfgenmsg g;
	};
	struct {
		struct msg begin, delete;
		struct nlattr a;
		char name[TABLE_MAX];
		struct msg end;
	} m = {
		.begin = { { sizeof(m.begin), NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, 0 },
			   { AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES) } },
		.delete = { { sizeof(m.delete) + sizeof(m.a) + sizeof(m.name),
			      NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE,
			      NLM_F_REQUEST | NLM_F_ACK, 1, 0 },
			    { NFPROTO_INET, NFNETLINK_V0, 0 } },
		.a = { sizeof(m.a) + sizeof(m.name), NFTA_TABLE_NAME },
		.end = { { sizeof(m.end), NFNL_MSG_BATCH_END, NLM_F_REQUEST, 2, 0 },
			 { AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES) } },
	};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[256];
	} answer;
	cleanup_close int sk = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

	snprintf(m.name, sizeof(m.name), "%s", table);
	if (sk < 0 || send(sk, &m, sizeof(m), 0) != sizeof(m) ||
	    recv(sk, &answer, sizeof(answer), 0) < (ssize_t)NLMSG_LENGTH(sizeof(answer.e)) ||
	    answer.h.nlmsg_type != NLMSG_ERROR)
		return -EIO;
	return answer.e.error;
}

/*
 * Deletes the table. Runs in a child, since a process that has entered the namespace might not be
 * able to leave it.
 */
static void lift(const char *network, const char *table)
{
	pid_t pid = *table ? fork() : -1;

	if (pid == 0) {
		cleanup_close int ns = network ? open(network, O_RDONLY | O_CLOEXEC) : -1;

		_exit((network && (ns < 0 || setns(ns, CLONE_NEWNET))) || delete_table(table));
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void netlock_lift(const struct docker_container *k)
{
	cleanup_free uint8_t *table = NULL;
	const char *network = network_of(k);
	char dir[PATH_MAX], name[192];
	size_t len;

	if ((size_t)snprintf(dir, sizeof(dir), "%s/docker", zns_run_dir()) >= sizeof(dir))
		return;
	snprintf(name, sizeof(name), "%s." NOTE, k->id);
	if (docker_read_admin(dir, name, TABLE_MAX - 1, &table, &len, NULL))
		return;
	/* if the container gets a new namespace, the table has disappeared with the old one */
	if (!strncmp((char *)table, "CRIU-", 5) && !(network && !*network))
		lift(network, (char *)table);
	netlock_forget(k->id);
}
