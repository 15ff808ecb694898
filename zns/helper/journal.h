/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_JOURNAL_H
#define ZNS_HELPER_JOURNAL_H
/* One journal record (sd-journal) for each dump and restore: how it ended, in fields. */
#include "helper.h"
#include "work_progress.h"

void journal_end(const struct helper *h, const struct progress_params *p, const struct work *w,
		 const struct outcome *how);
/* For a dump or restore that was refused before it began. */
void journal_refused(const struct helper *h, const char *op, const char *container,
		     const struct zns_err *err);

#endif
