/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PACKET_H
#define ZNS_PACKET_H
/* Packets with descriptors on SOCK_SEQPACKET sockets, and the directories of such sockets. */
#include <stdint.h>
#include <sys/uio.h>
#include "zns/err.h"

#define ZNS_PACKET_FDS 250u /* of one packet; the kernel allows a few more */

struct sockaddr_un;

/* 0 or -errno. The descriptors stay the caller's. */
int zns_packet_send(int sk, const struct iovec *iov, unsigned nr_iov, const int *fds, uint32_t nr);
/*
 * The packet's length, 0: the other side is gone, or -errno; -EPROTO: it is longer than the
 * buffers, or has more than @max descriptors. *@nr descriptors are the caller's, of 0 or an error
 * none.
 */
int zns_packet_recv(int sk, const struct iovec *iov, unsigned nr_iov, int *fds, uint32_t max,
		    uint32_t *nr);
void zns_packet_timeouts(int sk, unsigned seconds); /* for one packet */

/* Opens "SUB" in the runtime directory, made if it is not there: ours alone. -errno. */
int zns_run_subdir(const char *sub, struct zns_err *err);
/* Addresses a socket there; the directory's descriptor must stay open. A runtime directory may have
 * a longer name than an address has room for. */
void zns_run_address(int dir, const char *name, struct sockaddr_un *a);
/* The same for a name that no address has room for. The socket takes the place of what is there. */
int zns_run_bind(int sk, int dir, const char *name);
int zns_run_connect(int sk, int dir, const char *name);

#endif
