/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Converts numbers, sizes, bandwidths and durations to text and back. */
#include <errno.h>
#include <string.h>

#include "zns/util.h"

#define NSEC_PER_SEC 1000000000u

/* Parses decimal digits only. strtoull would also accept a sign, blanks, hex or an empty string. */
static int parse_digits(const char *s, const char **end, uint64_t *out)
{
	uint64_t v = 0;

	if (!s || *s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
			return -ERANGE;
	*end = s;
	*out = v;
	return 0;
}

int zns_parse_number(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *end;
	uint64_t v;
	int ret = parse_digits(s, &end, &v);

	if (ret)
		return ret;
	if (*end)
		return -EINVAL;
	if (v < min || v > max)
		return -ERANGE;
	*out = v;
	return 0;
}

static const char duration_unit[] = "smhdw";
static const uint32_t duration_s[] = { 1, 60, 3600, 86400, 604800 };

char *zns_format_duration(uint64_t s, char *buf, size_t len)
{
	size_t i = ZNS_ARRAY_SIZE(duration_s) - 1;

	while (s % duration_s[i])
		i--;
	snprintf(buf, len, "%llu%c", (unsigned long long)(s / duration_s[i]), duration_unit[i]);
	return buf;
}

int zns_parse_duration(const char *s, uint64_t *out_s)
{
	const char *end, *u;
	uint64_t v, each = 1;
	int ret = parse_digits(s, &end, &v);

	if (ret)
		return ret;
	if (*end) {
		u = strchr(duration_unit, *end);
		if (!u || end[1])
			return -EINVAL;
		each = duration_s[u - duration_unit];
	}
	if (v > (uint64_t)INT64_MAX / NSEC_PER_SEC / each)
		return -ERANGE;
	*out_s = v * each;
	return 0;
}

/* Parses a fraction like ".5", at most three digits. The result is in thousandths. */
static int parse_fraction(const char **s, uint32_t *thousandths)
{
	uint32_t each = 100;

	*thousandths = 0;
	if (**s != '.')
		return 0;
	for ((*s)++; **s >= '0' && **s <= '9'; (*s)++, each /= 10) {
		if (!each)
			return -EINVAL;
		*thousandths += (uint32_t)(**s - '0') * each;
	}
	return each == 100 ? -EINVAL : 0;
}

int zns_parse_size(const char *s, uint64_t *out_bytes)
{
	static const char letters[] = "KMGT";
	const char *end, *unit;
	uint32_t thousandths = 0;
	unsigned shift = 0;
	uint64_t v, part;
	bool point;
	int ret = parse_digits(s, &end, &v);

	point = !ret && *end == '.';
	if (!ret)
		ret = parse_fraction(&end, &thousandths);
	if (ret)
		return ret;
	if (*end == ' ' && end[1])
		end++;
	unit = *end ? strchr(letters, *end == 'k' ? 'K' : *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - letters + 1);
		end++;
		if (!strcmp(end, "iB"))
			end += 2;
	} else if (*end == 'B') {
		end++;
	}
	if (*end || (point && !shift))
		return -EINVAL;
	if (v > (UINT64_MAX >> shift))
		return -ERANGE;
	part = ((UINT64_C(1) << shift) * thousandths) / 1000;
	if (part > UINT64_MAX - (v << shift))
		return -ERANGE;
	*out_bytes = (v << shift) + part;
	return 0;
}

int zns_parse_mibps(const char *s, uint32_t *out_mibps)
{
	const char *end;
	uint64_t v;
	int ret = parse_digits(s, &end, &v);

	if (ret)
		return ret;
	if (!strcmp(end, "GiB/s")) {
		if (v > UINT32_MAX)
			return -ERANGE;
		v <<= 10;
	} else if (!strcmp(end, "KiB/s")) {
		v = v / 1024 + (v % 1024 != 0);
	} else if (*end && strcmp(end, "MiB/s")) {
		return -EINVAL;
	}
	if (!v || v > UINT32_MAX)
		return -ERANGE;
	*out_mibps = v;
	return 0;
}

char *zns_format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned u = 1, shift, tenths;

	if (bytes < 1024) {
		snprintf(buf, len, "%u B", (unsigned)bytes);
		return buf;
	}
	while (u + 1 < ZNS_ARRAY_SIZE(unit) && bytes >> (10 * (u + 1)))
		u++;
	for (;; u++) {
		shift = 10 * u;
		/* computes whole part and one rounded decimal separately, so that 16 EiB do not
		 * overflow */
		uint64_t whole = bytes >> shift, rest = bytes & ((UINT64_C(1) << shift) - 1);

		tenths = whole * 10 + (((rest >> (shift - 10)) * 10 + 512) >> 10);
		/* 1023.96 would be rounded to 1024.0: use the next unit instead */
		if (tenths < 10240 || u + 1 == ZNS_ARRAY_SIZE(unit))
			break;
	}
	snprintf(buf, len, "%u.%u %s", tenths / 10, tenths % 10, unit[u]);
	return buf;
}
