/* SPDX-License-Identifier: GPL-2.0-only */
/* Restores connections whose local address does not exist on this host. See include/zns-tcp.h. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "sk-inet.h"
#include "util.h"
#include "zns-tcp.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

bool zns_tcp_lost(const struct InetSkEntry *ie)
{
	const char *wish = secure_getenv("ZNS_TCP");
	union {
		struct sockaddr a;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} to = {};
	bool v6 = ie->family == AF_INET6, lost;
	size_t words = v6 ? 4 : 1;
	int sk;

	if (!wish || strcmp(wish, "auto") || ie->n_src_addr < words)
		return false;
	to.a.sa_family = (sa_family_t)ie->family;
	memcpy(v6 ? (void *)&to.v6.sin6_addr : (void *)&to.v4.sin_addr, ie->src_addr, words * 4);
	sk = socket((int)ie->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sk < 0)
		return false;
	lost = bind(sk, &to.a, v6 ? sizeof(to.v6) : sizeof(to.v4)) && errno == EADDRNOTAVAIL;
	close_safe(&sk);
	if (lost)
		pr_info("The address of a TCP connection is not there: it is restored closed\n");
	return lost;
}
