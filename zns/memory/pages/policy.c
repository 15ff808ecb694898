/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* May a context write memory to zones unencrypted? The rules of dumps decide, also while the
 * context runs. */
#include "pages_int.h"

int pages_encrypt(struct zns_pages *ps, struct zns_err *err)
{
	return zns_encryption_wanted(&ps->s.reg, ps->s.broker.encrypted, err);
}

/* Does this machine ask for encryption? Whether the device does, the broker reports with
 * each step. */
void pages_look_plain(struct zns_pages *ps)
{
	ps->forbidden = !ps->key && zns_encryption_wanted(&ps->s.reg, false, NULL);
}
