/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CRASH_INPROC_H
#define CRASH_INPROC_H
/* The broker's own code in this process, without its poll loop: connections are plain structs,
 * requests are calls. */
#include "../../zns/broker/requests/requests.h"

struct conn {
	struct waiter *waiter;
};

/* The broker on @dev, as after its start; ends with broker_close, which leaves the device. */
int broker_open(struct zns_dev *dev, struct znsd *d, struct zns_err *err);
void broker_close(struct znsd *d);
void broker_idle(struct znsd *d); /* background work until none is left */

#endif
