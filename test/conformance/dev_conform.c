/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dev_conform DEV --yes-destroy [--twin DEV2] [--wear DIR] [--only TEXT] [--list]
 *
 * Runs the cases of this directory on one device: emu:PATH, /dev/nvmeXnY, /dev/ngXnY or any other
 * zoned block device. All its data are lost. --twin names another node of the same device, --wear
 * the configfs directory of a null_blk device, where zones can be made read-only and offline. The
 * last line is the count; exit code 0 when nothing failed, 1 when something did, 2 for wrong usage
 * or a device that cannot be opened.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "conform.h"

struct conform t = { .read_only = NONE, .offline = NONE, .conventional = NONE };
struct zns_err conform_err;

static jmp_buf out;
static char verdict[1024], note[256];
static const struct conform_case *const sets[] = { data_cases, zone_cases, limit_cases, share_cases,
						   state_cases };

enum { PASSED, FAILED, SKIPPED };

void conform_fail(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;
	int n;

	n = snprintf(verdict, sizeof(verdict), "%s:%d: ", base ? base + 1 : file, line);
	va_start(ap, fmt);
	vsnprintf(verdict + n, sizeof(verdict) - n, fmt, ap);
	va_end(ap);
	longjmp(out, 1 + FAILED);
}

void conform_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(verdict, sizeof(verdict), fmt, ap);
	va_end(ap);
	longjmp(out, 1 + SKIPPED);
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

/* Which zones there are to play with. */
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

static int open_device(void)
{
	int rc = zns_dev_open(t.spec, 0, &t.d, E);

	if (!rc) {
		if (!setjmp(out)) {
			look_around();
			return 0;
		}
	} else {
		snprintf(verdict, sizeof(verdict), "%s", conform_err.msg);
	}
	fprintf(stderr, "dev_conform: %s\n", verdict);
	return 2;
}

static int run_case(const struct conform_case *c)
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
	return rc ? rc - 1 : PASSED;
}

static int run_all(const char *only)
{
	static const char *const word[] = { "PASS", "FAIL", "SKIP" };
	unsigned count[3] = { 0 };

	for (size_t s = 0; s < ZNS_ARRAY_SIZE(sets); s++)
		for (const struct conform_case *c = sets[s]; c->name; c++) {
			uint64_t begin = zns_mono_ns();
			int rc;

			if (only && !strstr(c->name, only))
				continue;
			rc = run_case(c);
			count[rc]++;
			printf("%s %s (%.2f s)%s%s\n", word[rc], c->name,
			       (zns_mono_ns() - begin) / 1e9,
			       rc    ? ": " :
			       *note ? ": " :
				       "",
			       rc ? verdict : note);
			fflush(stdout);
		}
	if (!setjmp(out))
		reset_everything();
	printf("%u passed, %u failed, %u skipped\n", count[PASSED], count[FAILED], count[SKIPPED]);
	return count[FAILED] || !count[PASSED];
}

static void list(void)
{
	for (size_t s = 0; s < ZNS_ARRAY_SIZE(sets); s++)
		for (const struct conform_case *c = sets[s]; c->name; c++)
			puts(c->name);
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "yes-destroy", no_argument, NULL, 'y' }, { "twin", required_argument, NULL, 't' },
		{ "wear", required_argument, NULL, 'w' },  { "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },        { 0 },
	};
	const char *only = NULL;
	bool yes = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'y':
			yes = true;
			break;
		case 't':
			t.twin = optarg;
			break;
		case 'w':
			t.wear = optarg;
			break;
		case 'o':
			only = optarg;
			break;
		case 'l':
			list();
			return 0;
		default:
			return 2;
		}
	}
	if (optind != argc - 1) {
		fprintf(stderr,
			"usage: dev_conform DEV --yes-destroy [--twin DEV2] [--wear DIR] [--only TEXT] [--list]\n");
		return 2;
	}
	t.spec = argv[optind];
	if (!yes) {
		fprintf(stderr, "dev_conform: all data on %s would be lost; say --yes-destroy\n",
			t.spec);
		return 2;
	}
	t.buf = aligned_alloc(65536, CONFORM_BUF);
	if (!t.buf)
		return 2;
	rc = open_device();
	if (rc)
		return rc;
	printf("%s: %s, %u zones of %llu KiB (%llu usable), blocks of %u, %u open, %u active, %u KiB a transfer, buffers on %u\n",
	       t.spec, t.d->ops->name, t.d->geo.nr_zones,
	       (unsigned long long)t.d->geo.zone_size / 1024, (unsigned long long)t.cap / 1024,
	       t.block, t.d->geo.max_open, t.d->geo.max_active, t.max_io / 1024,
	       t.d->geo.mem_align);
	rc = run_all(only);
	zns_dev_close(t.d);
	free(t.zone);
	free(t.buf);
	return rc;
}
