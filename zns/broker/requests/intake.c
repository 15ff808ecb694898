/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits the memory for requests that are being received. For a small request there is no limit.
 * For a larger one, memory for all of it is reserved before it is read, so that it can be read to
 * its end. If there is none left, the request stays in its socket. All peers that have no dump
 * share the memory of one request, so thousands of them need no more than one.
 */
#include "requests.h"

#define SMALL KIB(4)
/* enough for eight requests of the largest size; most are much smaller, since a checkpoint's record
 * has some hundred bytes */
#define OF_DUMPS MIB(64)

static size_t *used_of(struct znsd *d, bool dump)
{
	return &d->server->intake_used[dump];
}

bool intake_room(struct znsd *d, struct intake *in, uint32_t len, bool dump)
{
	if (len <= SMALL || in->room)
		return true;
	if (*used_of(d, dump) + len > (dump ? OF_DUMPS : ZNS_BROKER_REQ_MAX))
		return false;
	*used_of(d, dump) += len;
	in->room = len;
	in->dump = dump;
	return true;
}

void intake_end(struct znsd *d, struct intake *in)
{
	*used_of(d, in->dump) -= in->room;
	*in = (struct intake){ .room = 0 };
}
