/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An external I/O engine for fio: reads and writes zones through libzns
 * (ioengine=external:PATH/zns-fio.so).
 *
 *   zns_device=DEV     emu:PATH, /dev/nvmeXnY or /dev/ngXnY
 *   zns_zones=LIST     zones to use, "3,5,8-11", in this order
 *   zns_groups=LIST    instead: all zones of these groups (as the profile on the device has them):
 *                      the first zone of each, then the second of each, and so on
 *   zns_width=N        stripe over N zones at a time (1: one zone after the other)
 *   zns_unit=BYTES     so much is written to a zone of the stripe before the next one (512 KiB)
 *   zns_reset=0|1      reset the zones at the end (0)
 *   zns_start=NS       begin at this CLOCK_MONOTONIC
 *   zns_log=FILE       one line per I/O: issued and done, r or w, bytes, zone, offset
 *
 * Times are CLOCK_MONOTONIC in ns. `done` is when the timing model says the I/O ended, not when this
 * process noticed it.
 *
 * The job's file is the zones in their order: give filesize= to use less, rw=write, read or
 * randread. Where a write begins a zone that is not empty, the zone is reset first, so a time_based
 * job may go round. On an emulator with timing on, iodepth= commands are in flight in model time,
 * and fio's latencies are the model's, as far as the wall clock can follow it; in a virtual clock
 * (test/bench/vtime) exactly. On other devices the engine is synchronous.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fio.h"
#include "optgroup.h"

/* fio's own macros */
#undef cleanup_free
#include "../../controls/controls.h"
#include "zns/store.h"

struct options {
	void *pad; /* an option may not be at offset 0 */
	char *device, *zones, *groups, *log;
	unsigned int width, unit, reset;
	unsigned long long start;
};

#define OPT(n, t, field, text, ...)                                                        \
	{                                                                                  \
		.name = n, .lname = n, .type = t, .off1 = offsetof(struct options, field), \
		.help = text, .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID,    \
		__VA_ARGS__                                                                \
	}
static struct fio_option options[] = {
	OPT("zns_device", FIO_OPT_STR_STORE, device, "Device"),
	OPT("zns_zones", FIO_OPT_STR_STORE, zones, "Zones, in order"),
	OPT("zns_groups", FIO_OPT_STR_STORE, groups, "Groups whose zones are used"),
	OPT("zns_log", FIO_OPT_STR_STORE, log, "File for each I/O's times"),
	OPT("zns_width", FIO_OPT_INT, width, "Zones of a stripe", .def = "1", .minval = 1),
	OPT("zns_unit", FIO_OPT_INT, unit, "Stripe unit", .def = "524288", .minval = 4096),
	OPT("zns_reset", FIO_OPT_BOOL, reset, "Reset the zones at the end", .def = "0"),
	OPT("zns_start", FIO_OPT_ULL, start, "Begin at this CLOCK_MONOTONIC, ns", .def = "0"),
	{ .name = NULL },
};

struct flight {
	struct io_u *io_u;
	uint64_t done_ns; /* CLOCK_MONOTONIC */
};

struct engine {
	struct zns_dev *dev;
	uint32_t *zone, nr; /* a multiple of width */
	uint32_t width, unit;
	uint64_t *wp; /* write pointer of each zone in the list, as far as we know */
	uint64_t usable; /* usable size of each zone, in whole units */
	bool model; /* fio's times are the model's */
	uint64_t origin_ns; /* CLOCK_MONOTONIC at model time 0 */
	struct flight *flight;
	unsigned int nr_flight, max_flight;
	struct io_u **event;
	FILE *log;
};

static uint64_t mono(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int failed(const char *what, const struct zns_err *err)
{
	log_err("zns-fio: %s%s%s\n", what, err ? ": " : "", err ? err->msg : "");
	return 1;
}

/* Parses "3,5,8-11" into @out (if not NULL); returns the count, or 0 if it is no such list. */
static uint32_t parse_list(const char *s, uint32_t max, uint32_t *out)
{
	uint32_t n = 0;

	do {
		char *end;
		unsigned long a = strtoul(s, &end, 10), b = a;

		if (end == s)
			return 0;
		if (*end == '-') {
			s = end + 1;
			b = strtoul(s, &end, 10);
			if (end == s)
				return 0;
		}
		if (a > b || b >= max)
			return 0;
		for (; a <= b; a++, n++)
			if (out)
				out[n] = (uint32_t)a;
		s = end;
	} while (*s++ == ',');
	return s[-1] ? 0 : n;
}

static int take_zones(struct engine *e, const struct options *o)
{
	e->nr = parse_list(o->zones, e->dev->geo.nr_zones, NULL);
	e->zone = calloc(e->nr + 1, sizeof(*e->zone));
	if (!e->nr || !e->zone) {
		log_err("zns-fio: zns_zones=%s: a list like 3,5,8-11 is wanted; the device has zones 0 to %u\n",
			o->zones, e->dev->geo.nr_zones - 1);
		return 1;
	}
	parse_list(o->zones, e->dev->geo.nr_zones, e->zone);
	return 0;
}

static int take_groups(struct engine *e, const struct options *o)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s = NULL;
	const ZnsPb__Profile *p;
	uint32_t *want, n, left = 1;

	if (zns_store_open(e->dev, ZNS_STORE_RDONLY, &s, &err))
		return failed("zns_groups", &err);
	p = zns_store_profile(s);
	n = p ? parse_list(o->groups, (uint32_t)p->n_groups, NULL) : 0;
	want = calloc(n + 1, sizeof(*want));
	e->zone = calloc(e->dev->geo.nr_zones, sizeof(*e->zone));
	if (!n || !want || !e->zone) {
		log_err("zns-fio: zns_groups=%s: a list of groups is wanted; the device has %zu\n",
			o->groups, p ? p->n_groups : 0);
		zns_store_close(s);
		free(want);
		return 1;
	}
	parse_list(o->groups, (uint32_t)p->n_groups, want);
	/* takes one zone of each group, the turn-th, if all groups have one */
	for (uint32_t turn = 0; left; turn++) {
		uint32_t found = 0;

		for (uint32_t g = 0; g < n; g++) {
			uint32_t k = 0, z = zns_store_nr_meta(s);

			for (; z < e->dev->geo.nr_zones; z++)
				if (p->zone_group[z] == want[g] && k++ == turn)
					break;
			if (z < e->dev->geo.nr_zones)
				e->zone[e->nr + found++] = z;
		}
		left = found == n;
		if (left)
			e->nr += n;
	}
	zns_store_close(s);
	free(want);
	return 0;
}

static void engine_free(struct engine *e)
{
	if (!e)
		return;
	if (e->log)
		fclose(e->log);
	/* An emulator's handle in model time is left to the process's end: closing it would move
	 * the device's clock. */
	if (!e->model)
		zns_dev_close(e->dev);
	free(e->zone);
	free(e->wp);
	free(e->flight);
	free(e->event);
	free(e);
}

static struct engine *engine_open(struct thread_data *td, unsigned flags)
{
	const struct options *o = td->eo;
	struct engine *e = calloc(1, sizeof(*e));
	struct zns_err err = ZNS_ERR_INIT;

	if (!e)
		return NULL;
	e->width = o->width;
	e->unit = o->unit;
	if (!o->device || !o->zones == !o->groups) {
		failed("zns_device= is wanted, and zns_zones= or zns_groups=", NULL);
	} else if (zns_dev_open(o->device, flags, &e->dev, &err)) {
		failed("zns_device", &err);
	} else if (o->zones ? !take_zones(e, o) : !take_groups(e, o)) {
		e->nr -= e->nr % e->width;
		e->usable = e->dev->geo.zone_capacity -
			    e->dev->geo.zone_capacity % (e->width > 1 ? e->unit : 1);
		if (e->nr && e->usable)
			return e;
		failed("fewer zones than zns_width", NULL);
	}
	engine_free(e);
	return NULL;
}

/* Called in fio's main process: sets the file's size. */
static int zf_setup(struct thread_data *td)
{
	struct engine *e = engine_open(td, ZNS_DEV_RDONLY);
	struct fio_file *f;
	unsigned int i;

	if (!e)
		return 1;
	if (!td->files_index) {
		add_file(td, td->o.filename ? td->o.filename : "zones", 0, 0);
		td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
		td->o.open_files++;
	}
	for_each_file(td, f, i)
	{
		f->filetype = FIO_TYPE_BLOCK;
		f->real_file_size = e->usable * e->nr;
		fio_file_set_size_known(f);
	}
	engine_free(e);
	return 0;
}

static void enter_virtual_clock(void)
{
	void (*enter)(void);

	*(void **)&enter = dlsym(RTLD_DEFAULT, "vt_enter");
	if (enter)
		enter();
}

static int zf_init(struct thread_data *td)
{
	const struct options *o = td->eo;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_emu_params p;
	struct engine *e;

	enter_virtual_clock();
	if (o->start)
		sleep_until(o->start);
	e = engine_open(td, 0);
	if (!e)
		return 1;
	td->io_ops_data = e;
	e->max_flight = td->o.iodepth;
	e->flight = calloc(e->max_flight, sizeof(*e->flight));
	e->event = calloc(e->max_flight, sizeof(*e->event));
	e->wp = calloc(e->nr, sizeof(*e->wp));
	if (!e->flight || !e->event || !e->wp)
		return failed("no memory", NULL);
	for (uint32_t i = 0; i < e->nr; i++) {
		struct zns_zone z;

		if (zns_dev_report(e->dev, e->zone[i], 1, &z, &err))
			return failed("report", &err);
		e->wp[i] = z.wp;
	}
	if (o->log) {
		e->log = fopen(o->log, "w");
		if (!e->log)
			return failed(o->log, NULL);
	}
	if (!zns_emu_info(e->dev, &p, (uint8_t[ZNS_UUID_LEN]){ 0 }) && p.timing) {
		e->origin_ns = mono() - zns_emu_thread_clock(e->dev);
		if (zns_emu_set_clock(e->dev, ZNS_EMU_CLOCK_THREAD, &err))
			return failed("model time", &err);
		e->model = true;
	}
	return 0;
}

static int zf_open(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int zf_close(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static struct io_u *zf_event(struct thread_data *td, int event)
{
	struct engine *e = td->io_ops_data;

	return e->event[event];
}

/* Returns the completed I/Os, or waits for at least @min of them. */
static int zf_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			const struct timespec *timeout)
{
	struct engine *e = td->io_ops_data;
	unsigned int got = 0;
	uint64_t now = mono();

	while (e->nr_flight && got < max) {
		unsigned int first = 0;

		for (unsigned int i = 1; i < e->nr_flight; i++)
			if (e->flight[i].done_ns < e->flight[first].done_ns)
				first = i;
		if (e->flight[first].done_ns > now) {
			if (got >= min)
				break;
			sleep_until(e->flight[first].done_ns);
			now = mono();
		}
		e->event[got++] = e->flight[first].io_u;
		e->flight[first] = e->flight[--e->nr_flight];
	}
	return (int)got;
}

/* Finds the zone and offset of a byte of the job's file, and how many bytes follow there. */
static uint64_t place(const struct engine *e, uint64_t at, uint32_t *index, uint64_t *off)
{
	uint64_t row = e->usable * e->width, in = at % row, k;

	if (e->width == 1) {
		*index = (uint32_t)(at / e->usable);
		*off = in;
		return e->usable - in;
	}
	k = in / e->unit;
	*index = (uint32_t)(at / row) * e->width + k % e->width;
	*off = k / e->width * e->unit + in % e->unit;
	return e->unit - in % e->unit;
}

static int transfer(struct engine *e, bool write, uint64_t at, uint8_t *buf, uint64_t len,
		    struct zns_err *err)
{
	int rc = 0;

	while (len && !rc) {
		uint64_t off, n, max = e->dev->geo.max_io_bytes;
		uint32_t i, zone;

		n = place(e, at, &i, &off);
		n = zns_min(n, len);
		n = max ? zns_min(n, max) : n;
		zone = e->zone[i];
		if (write && !off && e->wp[i]) {
			rc = zns_dev_reset(e->dev, &zone, 1, err);
			e->wp[i] = 0;
		}
		if (!rc)
			rc = write ? zns_dev_write(e->dev, zone, off, buf, n, err) :
				     zns_dev_read(e->dev, zone, off, buf, n, err);
		if (write)
			e->wp[i] = off + n;
		at += n;
		buf += n;
		len -= n;
	}
	return rc;
}

static enum fio_q_status zf_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = td->io_ops_data;
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t issued = mono(), done;
	int rc = 0;

	fio_ro_check(td, io_u);
	if (e->model)
		zns_emu_set_thread_clock(e->dev, issued - e->origin_ns);
	if (io_u->ddir == DDIR_WRITE || io_u->ddir == DDIR_READ)
		rc = transfer(e, io_u->ddir == DDIR_WRITE, io_u->offset, io_u->xfer_buf,
			      io_u->xfer_buflen, &err);
	else if (ddir_sync(io_u->ddir))
		rc = zns_dev_flush(e->dev, &err);
	else
		rc = -EOPNOTSUPP;
	if (rc) {
		failed("I/O", &err);
		io_u->error = -rc;
		return FIO_Q_COMPLETED;
	}
	done = e->model ? zns_emu_thread_clock(e->dev) + e->origin_ns : mono();
	if (e->log && ddir_rw(io_u->ddir)) {
		uint64_t off;
		uint32_t i;

		place(e, io_u->offset, &i, &off);
		fprintf(e->log, "%llu %llu %c %llu %u %llu\n", (unsigned long long)issued,
			(unsigned long long)done, io_u->ddir == DDIR_WRITE ? 'w' : 'r',
			(unsigned long long)io_u->xfer_buflen, e->zone[i], (unsigned long long)off);
	}
	if (!e->model)
		return FIO_Q_COMPLETED;
	e->flight[e->nr_flight++] = (struct flight){ io_u, done };
	return FIO_Q_QUEUED;
}

static void zf_cleanup(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;
	const struct options *o = td->eo;
	struct zns_err err = ZNS_ERR_INIT;

	if (!e)
		return;
	if (o->reset && e->wp && zns_dev_reset(e->dev, e->zone, e->nr, &err))
		failed("resetting the zones", &err);
	engine_free(e);
	td->io_ops_data = NULL;
}

__attribute__((visibility("default"))) struct ioengine_ops ioengine = {
	.name = "zns-fio",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_NOEXTEND | FIO_NODISKUTIL | FIO_DISKLESSIO | FIO_MEMALIGN,
	.setup = zf_setup,
	.init = zf_init,
	.queue = zf_queue,
	.getevents = zf_getevents,
	.event = zf_event,
	.open_file = zf_open,
	.close_file = zf_close,
	.cleanup = zf_cleanup,
	.options = options,
	.option_struct_size = sizeof(struct options),
};
