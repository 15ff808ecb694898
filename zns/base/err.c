/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One-line errors: see err.h. */
#include <stdio.h>
#include <string.h>

#include "zns/err.h"
#include "zns/util.h"

/* at least this many bytes of the text before the reason are kept, however long the reason is */
#define WHAT_MIN 64
/* longer than a message, so that a cut can be marked */
#define TEXT_MAX (ZNS_ERR_MAX + 4)

static int normalise(int code)
{
	if (code > 0)
		return -code;
	return code ? code : -EIO;
}

/* The length of @text cut to @max bytes, without an incomplete UTF-8 character at the end. */
static size_t cut(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len <= max)
		return len;
	while (max && ((unsigned char)text[max] & 0xc0) == 0x80)
		max--;
	return max;
}

/* To be called with formatted text, since an argument of the format may be err->msg itself. */
static void record(struct zns_err *err, int code, const char *text)
{
	size_t len = cut(text, sizeof(err->msg) - 1);

	err->code = code;
	memcpy(err->msg, text, len);
	err->msg[len] = '\0';
	/* the text may contain file names or strings from a device: keep one line, remove terminal
	 * escapes */
	zns_clean(err->msg);
}

/* "text: why". A long file name must not push the reason out, so the first part is cut. */
static void record_why(struct zns_err *err, int code, const char *text, const char *why)
{
	size_t max = sizeof(err->msg) - 1, room = max > strlen(why) + 2 ? max - strlen(why) - 2 : 0;
	char line[2 * ZNS_ERR_MAX];

	room = zns_max(room, (size_t)WHAT_MIN);
	if (strlen(text) > room)
		snprintf(line, sizeof(line), "%.*s...: %s", (int)cut(text, room - 3), text, why);
	else
		snprintf(line, sizeof(line), "%s: %s", text, why);
	record(err, code, line);
}

int zns_fail(struct zns_err *err, int code, const char *fmt, ...)
{
	char text[TEXT_MAX];
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
	char text[TEXT_MAX], buf[128];
	va_list ap;

	code = normalise(code);
	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	record_why(err, code, text, strerror_r(-code, buf, sizeof(buf)));
	return code;
}

int zns_wrap(struct zns_err *err, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	if (!err)
		return -EIO;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	record_why(err, normalise(err->code), text, err->code ? err->msg : "unknown error");
	return err->code;
}
