/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See journal.h. */
#include "journal.h"
#include "zns/journal.h"

#define NAME "zns-helper"

static void begin(struct zns_journal *j, const struct helper *h, int priority, const char *text,
		  const char *op, const char *container)
{
	char id[ZNS_UUID_STR];

	zns_journal_begin(j, NAME, priority, text);
	zns_journal_text(j, "ZNS_OPERATION", op);
	zns_journal_text(j, "ZNS_CONTAINER", container);
	if (*h->s.reg.path) {
		zns_journal_text(j, "ZNS_DEVICE", zns_uuid_format(h->s.reg.uuid, id));
		zns_journal_text(j, "ZNS_DEVICE_PATH", h->s.reg.path);
	}
}

static void figures(struct zns_journal *j, const struct progress_params *p, const struct work *w,
		    const struct outcome *how)
{
	char id[ZNS_UUID_STR];

	zns_journal_text(j, "ZNS_CHECKPOINT", zns_uuid_format(p->checkpoint, id));
	zns_journal_number(j, "ZNS_BYTES", w->bytes);
	zns_journal_number(j, "ZNS_PAGE_BYTES", w->page_bytes);
	zns_journal_number(j, "ZNS_DATA_USEC", w->data_us);
	if (p->qos_mibps)
		zns_journal_number(j, "ZNS_ASKED_BPS", p->qos_mibps * MIB(1));
	if (!how->ok)
		return;
	if (how->achieved_mibps > 0)
		zns_journal_number(j, "ZNS_ACHIEVED_BPS",
				   (uint64_t)(how->achieved_mibps * (double)MIB(1)));
	if (how->frozen_us)
		zns_journal_number(j, "ZNS_FROZEN_USEC", how->frozen_us);
	zns_journal_number(j, "ZNS_ZONES", how->zones);
	zns_journal_number(j, "ZNS_GROUPS", how->groups);
	zns_journal_number(j, "ZNS_SHARED_GROUPS", how->shared_groups);
}

void journal_end(const struct helper *h, const struct progress_params *p, const struct work *w,
		 const struct outcome *how)
{
	char text[ZNS_ERR_MAX + 512], size[32], got[48] = "";
	struct zns_journal j;

	if (how->achieved_mibps > 0)
		snprintf(got, sizeof(got), ", %.0f MiB/s", how->achieved_mibps);
	if (how->ok)
		snprintf(text, sizeof(text), "%s of %s done: %s%s", p->op, p->container,
			 zns_format_size(w->bytes, size, sizeof(size)), got);
	else
		snprintf(text, sizeof(text), "%s of %s failed: %s", p->op, p->container,
			 how->error && *how->error ? how->error : "it did not end well");
	begin(&j, h, how->ok ? LOG_INFO : LOG_ERR, zns_clean(text), p->op, p->container);
	zns_journal_text(&j, "ZNS_RESULT", how->ok ? "done" : "failed");
	figures(&j, p, w, how);
	zns_journal_send(&j); /* the journal is the only place to report this */
}

void journal_refused(const struct helper *h, const char *op, const char *container,
		     const struct zns_err *err)
{
	char text[ZNS_ERR_MAX + 512];
	struct zns_journal j;

	snprintf(text, sizeof(text), "%s%s%s failed: %s", op, *container ? " of " : "", container,
		 err->msg);
	begin(&j, h, LOG_ERR, zns_clean(text), op, container);
	zns_journal_text(&j, "ZNS_RESULT", "failed");
	zns_journal_number(&j, "ERRNO", (uint64_t)(err->code < 0 ? -err->code : err->code));
	zns_journal_send(&j);
}
