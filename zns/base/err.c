/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One-line errors: see err.h. */
#include <stdio.h>
#include <string.h>

#include "zns/err.h"

/* File names and device strings end up in messages: keep them on one line and off the terminal's escapes. */
static void one_line(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = ' ';
}

static int normalise(int code)
{
	if (code > 0)
		return -code;
	return code ? code : -EIO;
}

/* Formats aside first: an argument may be err->msg itself. */
static void record(struct zns_err *err, int code, const char *text)
{
	size_t len = strlen(text);

	if (len >= sizeof(err->msg))
		len = sizeof(err->msg) - 1;
	err->code = code;
	memcpy(err->msg, text, len);
	err->msg[len] = '\0';
	one_line(err->msg);
}

int zns_fail(struct zns_err *err, int code, const char *fmt, ...)
{
	char text[ZNS_ERR_MAX];
	va_list ap;

	code = normalise(code);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	record(err, code, text);
	return code;
}

int zns_fail_sys(struct zns_err *err, int code, const char *fmt, ...)
{
	char text[2 * ZNS_ERR_MAX], buf[128];
	va_list ap;
	size_t len;

	code = normalise(code);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, ZNS_ERR_MAX, fmt, ap);
	va_end(ap);
	len = strlen(text);
	snprintf(text + len, sizeof(text) - len, ": %s", strerror_r(-code, buf, sizeof(buf)));
	record(err, code, text);
	return code;
}

int zns_wrap(struct zns_err *err, const char *fmt, ...)
{
	char text[2 * ZNS_ERR_MAX];
	va_list ap;
	size_t len;

	if (!err)
		return -EIO;
	va_start(ap, fmt);
	vsnprintf(text, ZNS_ERR_MAX, fmt, ap);
	va_end(ap);
	len = strlen(text);
	snprintf(text + len, sizeof(text) - len, ": %s", err->code ? err->msg : "unknown error");
	record(err, normalise(err->code), text);
	return err->code;
}
