/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PACKET_H
#define ZNS_PACKET_H
/* Packets with descriptors over SOCK_SEQPACKET sockets, and the directories that contain such
 * sockets. */
#include <stdint.h>
#include <sys/uio.h>
#include "zns/err.h"

/* most descriptors in one packet; the kernel's limit is slightly higher */
#define ZNS_PACKET_FDS 250u

struct sockaddr_un;

/* Sends one packet. 0 or -errno. The caller keeps owning the descriptors. */
int zns_packet_send(int sk, const struct iovec *iov, unsigned nr_iov, const int *fds, uint32_t nr);
/* Receives one packet. Returns its length; 0: the peer has closed the socket; or -errno. -EPROTO:
 * the packet is longer than the buffers, or has more than @max descriptors. The caller owns the
 * *@nr descriptors; after 0 or an error there are none. */
int zns_packet_recv(int sk, const struct iovec *iov, unsigned nr_iov, int *fds, uint32_t max,
		    uint32_t *nr);
/* sets the time limits to send and to receive one packet */
void zns_packet_timeouts(int sk, unsigned seconds);

/* Opens the subdirectory @sub of the runtime directory, and creates it if necessary, accessible
 * only for us. Returns a descriptor or -errno. */
int zns_run_subdir(const char *sub, struct zns_err *err);
/* Makes an address of a socket in @dir; the descriptor must stay open. Needed because the path of a
 * runtime directory may be too long for an address. */
void zns_run_address(int dir, const char *name, struct sockaddr_un *a);
/*
 * Like bind() and connect(), for a path that is too long for an address. zns_run_bind replaces an
 * existing file of that name.
 */
int zns_run_bind(int sk, int dir, const char *name);
int zns_run_connect(int sk, int dir, const char *name);

#endif
