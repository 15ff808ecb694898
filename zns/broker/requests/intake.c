/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory for unfinished requests. A small request is simply read. For a larger one all its room
 * is set aside before it is read, so that it can be read to its end. Without room the request stays
 * in its socket. All peers without a dump share the room of one request, so thousands of them cost
 * no more than one.
 */
#include "requests.h"

#define SMALL KIB(4)
/* room for eight of the largest; the record in a manifest has some hundred bytes */
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
