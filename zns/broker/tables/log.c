/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Messages of the broker: a line in its log, and a journal record with the same contents in fields.
 */
#include <string.h>
#include "zns/journal.h"
#include "tables.h"

/* A broker has one device. If it is not set, as in tests that run this code, nothing is sent to the
 * journal. */
static struct {
	char device[ZNS_UUID_STR], path[sizeof(((struct zns_registered *)NULL)->path)];
} about;

void znsd_log_device(const struct zns_registered *reg)
{
	zns_uuid_format(reg->uuid, about.device);
	snprintf(about.path, sizeof(about.path), "%s", reg->path);
}

static const char *work_of(const struct lease *l)
{
	static const char *const names[] = {
		[LEASE_DUMP] = "dump",       [LEASE_IMPORT] = "import",
		[LEASE_FLATTEN] = "flatten", [LEASE_COMPACT] = "compact",
		[LEASE_SOURCE] = "compact",  [LEASE_NAMED] = "dump",
		[LEASE_RESTORE] = "restore",
	};

	return l->kind == LEASE_YIELDING ? l->yields.ops->kind : names[l->kind];
}

static int to_journal(int priority, const struct lease *l, const char *line)
{
	struct zns_journal j;
	char id[ZNS_UUID_STR];

	if (!*about.device)
		return -ENOENT;
	zns_journal_begin(&j, "znsd", priority, line);
	zns_journal_text(&j, "ZNS_DEVICE", about.device);
	zns_journal_text(&j, "ZNS_DEVICE_PATH", about.path);
	if (l) {
		zns_journal_text(&j, "ZNS_OPERATION", work_of(l));
		zns_journal_text(&j, "ZNS_CONTAINER", l->container);
		zns_journal_text(&j,
				 l->kind == LEASE_YIELDING ? l->yields.ops->id_field :
							     "ZNS_CHECKPOINT",
				 zns_uuid_format(l->id, id));
		zns_journal_number(&j, "ZNS_PID", l->pid);
		zns_journal_number(&j, "ZNS_BYTES", l->bytes);
	}
	return zns_journal_send(&j);
}

void znsd_say(int priority, const struct lease *l, const char *fmt, ...)
{
	char when[32], line[ZNS_ERR_MAX + 256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	zns_clean(line); /* names in records may contain newlines */
	if (!to_journal(priority, l, line) && zns_journal_owns(STDERR_FILENO))
		return;
	/* One write for each line, so that lines of two brokers are not mixed. */
	dprintf(STDERR_FILENO, "%s znsd[%d]: %s\n",
		zns_format_time(zns_now_ns(), when, sizeof(when)), (int)getpid(), line);
}
