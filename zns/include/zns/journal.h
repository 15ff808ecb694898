/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_JOURNAL_H
#define ZNS_JOURNAL_H
/*
 * Sends records to journald in its native protocol: one datagram with fields. No state is kept
 * between records, and no call waits: if the journal does not read fast enough, a record is lost.
 * Safe from any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <syslog.h>

#define ZNS_JOURNAL_SOCKET "/run/systemd/journal/socket"
#define ZNS_JOURNAL_MAX 16384 /* size of a record in bytes; a field that does not fit is left out */

struct zns_journal {
	size_t len;
	char data[ZNS_JOURNAL_MAX];
};

/* @program: SYSLOG_IDENTIFIER. @priority: LOG_ERR and so on. */
void zns_journal_begin(struct zns_journal *j, const char *program, int priority,
		       const char *message);
/* Adds a field. @name: capitals, digits and _. A value may contain any byte. NULL or "": no field
 * is added. */
void zns_journal_text(struct zns_journal *j, const char *name, const char *value);
void zns_journal_number(struct zns_journal *j, const char *name, uint64_t value);
/* 0, or -errno: there is no journal, or it does not accept records at the moment. */
int zns_journal_send(const struct zns_journal *j);
/* Is this descriptor connected to the journal, according to $JOURNAL_STREAM, which systemd sets? */
bool zns_journal_owns(int fd);

#endif
