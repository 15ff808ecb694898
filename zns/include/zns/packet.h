/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PACKET_H
#define ZNS_PACKET_H
/* Packets with descriptors on SOCK_SEQPACKET sockets, and the directories of such sockets. */
#include <stdint.h>
#include <sys/uio.h>
#include "zns/err.h"

#define ZNS_PACKET_FDS 250u /* most descriptors in one packet; the kernel allows a few more */

struct sockaddr_un;

/* 0 or -errno. The descriptors stay the caller's. */
int zns_packet_send(int sk, const struct iovec *iov, unsigned nr_iov, const int *fds, uint32_t nr);
/* Returns the packet's length, 0: the peer has closed the socket, or -errno; -EPROTO: it is longer
 * than the buffers, or has more than @max descriptors. The caller owns *@nr descriptors; after 0 or
 * an error there are none. */
int zns_packet_recv(int sk, const struct iovec *iov, unsigned nr_iov, int *fds, uint32_t max,
		    uint32_t *nr);
void zns_packet_timeouts(int sk, unsigned seconds); /* sets the limits for one packet */

/* Opens "SUB" in the runtime directory, made if it is not there: ours alone. -errno. */
int zns_run_subdir(const char *sub, struct zns_err *err);
/* Addresses a socket there; the directory's descriptor must stay open. A runtime directory may have
 * a longer name than an address has room for. */
void zns_run_address(int dir, const char *name, struct sockaddr_un *a);
/*
 * Like bind(), for a name that is too long for an address. The socket replaces a file of that name.
 */
int zns_run_bind(int sk, int dir, const char *name);
int zns_run_connect(int sk, int dir, const char *name);

#endif
