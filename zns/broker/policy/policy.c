/* SPDX-License-Identifier: GPL-2.0-only */
/* Allocates and frees the policy's state. */
#include "policy.h"

void policy_init(struct znsd *d)
{
	d->policy = znsd_alloc(sizeof(*d->policy));
}

void policy_fini(struct znsd *d)
{
	if (d->policy) {
		hot_fini(d);
		footers_fini(d);
		free(d->policy->held);
	}
	free(d->policy);
	d->policy = NULL;
}
