/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_JOURNAL_H
#define ZNS_JOURNAL_H
/*
 * Records for journald, in its native protocol: one datagram with fields. Nothing is kept between
 * records, and no record is waited for: a journal that does not read loses it. Safe from any
 * thread.
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
/* @name: capitals, digits and _. A value may hold anything. NULL or "": no field. */
void zns_journal_text(struct zns_journal *j, const char *name, const char *value);
void zns_journal_number(struct zns_journal *j, const char *name, uint64_t value);
/* 0, or -errno: there is no journal, or it does not accept records now. */
int zns_journal_send(const struct zns_journal *j);
/* Is this descriptor connected to the journal, as systemd says in $JOURNAL_STREAM? */
bool zns_journal_owns(int fd);

#endif
