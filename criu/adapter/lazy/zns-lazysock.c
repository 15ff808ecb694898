/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The socket between a restore and its lazy-pages daemon. Userfaultfds are sent through it, so the
 * process at the other end decides what the restored tasks find in their memory. CRIU makes a named
 * socket in its work directory, which may belong to another user.
 *
 * A daemon that the restore starts itself (--zns-memory) gets one end of a socketpair, without a
 * name. A daemon that the administrator has started uses the named socket. There the kernel says
 * which user the peer is.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "image.h"
#include "log.h"
#include "util.h"
#include "zns-extend.h"
#include "zns-img.h"
#include "zns-lazy.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static int restores_end = -1;

int zns_lazy_pair(void)
{
	int sk[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sk))
		return -1;
	if (zns_holder_listen(sk[1])) {
		close(sk[0]);
		close(sk[1]);
		return -1;
	}
	close_safe(&restores_end);
	restores_end = sk[0];
	return sk[1];
}

/*
 * Returns 0 if the peer runs as our own user, else -1. Without zones any peer is accepted, as in
 * unmodified CRIU.
 */
static int is_ours(int sk)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!zns_active())
		return 0;
	if (getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -1;
	if (peer.uid == geteuid())
		return 0;
	pr_err("At the other end of the lazy-pages socket is process %d of user %u, whose directory "
	       "this may be: give criu lazy-pages and criu restore a --work-dir of your own\n",
	       peer.pid, peer.uid);
	errno = EPERM;
	return -1;
}

int zns_lazy_connect(int sk, const struct sockaddr *to, socklen_t len)
{
	int ret;

	if (!zns_extends())
		return connect(sk, to, len) ? -1 : is_ours(sk);
	ret = dup2(restores_end, sk) < 0 ? -1 : 0;
	close_safe(&restores_end);
	return ret;
}

int zns_lazy_inherited(void)
{
	return fcntl(ZNS_DAEMON_SK, F_DUPFD_CLOEXEC, 0);
}

int zns_lazy_accept(int sk, struct sockaddr *from, socklen_t *len)
{
	int client = zns_extends() ? dup(sk) : accept(sk, from, len);

	if (client >= 0 && !zns_extends() && is_ours(client))
		close_safe(&client);
	return client;
}
