/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * May a context write unencrypted memory to zones? The rules for dumps decide this, also while the
 * context runs.
 */
#include "pages_int.h"

int pages_encrypt(struct zns_pages *ps, struct zns_err *err)
{
	return zns_encryption_wanted(&ps->s.reg, ps->s.broker.encrypted, err);
}

/*
 * Does this machine require encryption? Whether the device does is reported by the broker with each
 * step.
 */
void pages_look_plain(struct zns_pages *ps)
{
	ps->forbidden = !ps->key && zns_encryption_wanted(&ps->s.reg, false, NULL);
}
