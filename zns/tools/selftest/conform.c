/* SPDX-License-Identifier: GPL-2.0-only */
/* Runs test cases, and has the functions that they share. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include "case.h"

struct conform t = { .read_only = NONE, .offline = NONE, .conventional = NONE };
struct zns_err conform_err;

static jmp_buf out;
static char verdict[1024], note[256];

void conform_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;
	int n;

	n = snprintf(verdict, sizeof(verdict), "%s:%d: ", base ? base + 1 : file, line);
	va_start(ap, fmt);
	vsnprintf(verdict + n, sizeof(verdict) - n, fmt, ap);
	va_end(ap);
	longjmp(out, 1 + CONFORM_FAILED);
}

void conform_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(verdict, sizeof(verdict), fmt, ap);
	va_end(ap);
	longjmp(out, 1 + CONFORM_SKIPPED);
}

void conform_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(note, sizeof(note), fmt, ap);
	va_end(ap);
}

struct zns_zone zone_of(uint32_t zone)
{
	struct zns_zone z;

	OK(zns_dev_report(t.d, zone, 1, &z, E));
	SAME(z.index, zone);
	return z;
}

void pattern(uint8_t *buf, uint32_t zone, uint64_t off, size_t len, uint32_t tag)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = (off + i) / 8 * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)zone << 32 ^
			     tag;

		memcpy(buf + i, &v, 8);
	}
}

bool is_pattern(const uint8_t *buf, uint32_t zone, uint64_t off, size_t len, uint32_t tag)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v;

		pattern((uint8_t *)&v, zone, off + i, 8, tag);
		if (memcmp(buf + i, &v, 8))
			return false;
	}
	return true;
}

void put(uint32_t zone, uint64_t off, uint64_t len)
{
	while (len) {
		size_t n = zns_min(len, (uint64_t)t.max_io);

		pattern(t.buf, zone, off, n, 0);
		OK(zns_dev_write(t.d, zone, off, t.buf, n, E));
		off += n;
		len -= n;
	}
}

void check(uint32_t zone, uint64_t off, uint64_t len)
{
	while (len) {
		size_t n = zns_min(len, (uint64_t)t.max_io);

		memset(t.buf, 0xee, n);
		OK(zns_dev_read(t.d, zone, off, t.buf, n, E));
		if (!is_pattern(t.buf, zone, off, n, 0))
			conform_fail(__FILE__, __LINE__, "zone %u has other data at %llu", zone,
				     (unsigned long long)off);
		off += n;
		len -= n;
	}
}

void reset_everything(void)
{
	uint32_t total = t.d->geo.nr_zones, nr = 0;
	cleanup_free struct zns_zone *z = calloc(total, sizeof(*z));
	cleanup_free uint32_t *list = calloc(total, sizeof(*list));

	TRUE(z && list);
	OK(zns_dev_report(t.d, 0, total, z, E));
	for (uint32_t i = 0; i < total; i++)
		if (!z[i].conventional && z[i].state != ZNS_ZONE_EMPTY &&
		    z[i].state != ZNS_ZONE_READ_ONLY && z[i].state != ZNS_ZONE_OFFLINE)
			list[nr++] = i;
	OK(zns_dev_reset(t.d, list, nr, E));
}

/* Finds out which zones there are for the cases. */
static void look_around(void)
{
	uint32_t total = t.d->geo.nr_zones;
	cleanup_free struct zns_zone *z = calloc(total, sizeof(*z));

	t.zone = calloc(total, sizeof(*t.zone));
	TRUE(z && t.zone);
	OK(zns_dev_report(t.d, 0, total, z, E));
	for (uint32_t i = 0; i < total; i++) {
		if (z[i].conventional)
			t.conventional = i;
		else if (z[i].state == ZNS_ZONE_READ_ONLY)
			t.read_only = i;
		else if (z[i].state == ZNS_ZONE_OFFLINE)
			t.offline = i;
		else if (!t.cap || z[i].capacity == t.cap)
			t.cap = z[i].capacity, t.zone[t.nr++] = i;
	}
	t.block = t.d->geo.block_size;
	t.max_io = t.d->geo.max_io_bytes;
}

int conform_open(const char *spec, const char *twin, struct zns_err *err)
{
	int rc = zns_dev_open(spec, 0, &t.d, err);

	if (rc)
		return rc;
	t.spec = spec;
	t.twin = twin;
	t.buf = aligned_alloc(65536, CONFORM_BUF);
	if (!t.buf)
		rc = zns_fail(err, -ENOMEM, "no memory for a buffer");
	else if (!setjmp(out))
		look_around();
	else
		rc = zns_fail(err, -EIO, "%s", verdict);
	if (rc)
		conform_close();
	return rc;
}

void conform_close(void)
{
	zns_dev_close(t.d);
	free(t.zone);
	free(t.buf);
	t = (struct conform){ .read_only = NONE, .offline = NONE, .conventional = NONE };
}

/* Kills child processes that a failed case has left behind. */
static void end_peers(void)
{
	for (unsigned int i = 0; i < CONFORM_PEERS; i++)
		if (t.peer[i]) {
			kill(t.peer[i], SIGKILL);
			waitpid(t.peer[i], NULL, 0);
			t.peer[i] = 0;
		}
}

static enum conform_verdict run_case(const struct conform_case *c)
{
	int rc;

	*verdict = *note = '\0';
	rc = setjmp(out);
	if (!rc) {
		if (c->zones > t.nr)
			conform_skip("wants %u zones, the device has %u", c->zones, t.nr);
		reset_everything();
		c->run();
	}
	end_peers();
	return rc ? rc - 1 : CONFORM_PASSED;
}

void conform_run(const struct conform_case *cases, const char *only, conform_said said, void *arg)
{
	for (const struct conform_case *c = cases; c->name; c++) {
		uint64_t begin = zns_mono_ns();
		enum conform_verdict v;

		if (only && !strstr(c->name, only))
			continue;
		v = run_case(c);
		said(arg, c->name, v, (double)(zns_mono_ns() - begin) / 1e9,
		     v == CONFORM_PASSED ? note : verdict);
	}
}

int conform_reset(struct zns_err *err)
{
	if (setjmp(out))
		return zns_fail(err, -EIO, "%s", verdict);
	reset_everything();
	return 0;
}
