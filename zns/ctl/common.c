// SPDX-License-Identifier: GPL-2.0-only
/* What the commands share: options, errors, the way to the broker, JSON. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include "ctl.h"
#include "zns/crypt.h"

#define CLAIM_MS 5000
#define INSIST_NS 1000000000ull

int ctl_begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	return zns_std_fds();
}

/* Half an answer must not look like one. A reader that left early, as head does, knows that it did. */
int ctl_end(const char *name, int code)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int why = fflush(stdout) ? errno : 0;

	if (!why && !ferror(stdout))
		return code;
	if (why != EPIPE && !(poll(&out, 1, 0) == 1 && out.revents & POLLERR))
		fprintf(stderr, "%s: cannot write to standard output%s%s\n", name, why ? ": " : "", why ? strerror(why) : "");
	return code ? code : CTL_FAILED;
}

int ctl_fail(const struct ctl_cmd *cmd, const struct zns_err *err)
{
	fprintf(stderr, "znsctl %s: %s\n", cmd->name, err->msg);
	return CTL_FAILED;
}

int ctl_oom(const struct ctl_cmd *cmd)
{
	fprintf(stderr, "znsctl %s: out of memory\n", cmd->name);
	return CTL_FAILED;
}

int ctl_usage(const struct ctl_cmd *cmd, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "znsctl %s: %s; see znsctl %s --help\n", cmd->name, zns_clean(text), cmd->name);
	return CTL_USAGE;
}

int ctl_getopt(const struct ctl_cmd *cmd, int argc, char **argv, const struct option *opts, struct ctl_args *args)
{
	const char *letters = "h";
	int c, at = -1;

	for (const struct option *o = opts; o->name; o++)
		if (o->val == OPT_VERBOSE)
			letters = "hv";
	while ((c = getopt_long(argc, argv, letters, opts, &at)) != -1) {
		/* "$X" with X unset: an empty value means nothing anywhere, least of all "the default" or "all". */
		if (at >= 0 && opts[at].has_arg == required_argument && optarg && !*optarg) {
			args->code = ctl_usage(cmd, "--%s has an empty value", opts[at].name);
			return -2;
		}
		at = -1;
		switch (c) {
		case OPT_JSON:
			args->json = true;
			break;
		case OPT_DEV:
			args->dev = optarg;
			break;
		case 'v':
			return OPT_VERBOSE;
		case 'h':
		case OPT_HELP:
			printf("usage: znsctl %s %s\n%s\n\n%s", cmd->name, cmd->args, cmd->brief, cmd->help);
			printf("  --json          machine-readable output\n");
			args->code = CTL_OK;
			return -2;
		case '?':
			args->code = CTL_USAGE;
			return -2;
		default:
			return c;
		}
	}
	for (c = optind; c < argc; c++) {
		if (!*argv[c]) {
			args->code = ctl_usage(cmd, "argument %d is empty", c - optind + 1);
			return -2;
		}
	}
	args->argc = argc - optind;
	args->argv = argv + optind;
	return -1;
}

void ctl_take_dev(struct ctl_args *args)
{
	struct zns_registered reg;
	uint8_t uuid[ZNS_UUID_LEN];
	const char *s = args->argc ? args->argv[0] : NULL;

	if (args->dev || !s)
		return;
	if (strncmp(s, "emu:", 4) && strncmp(s, "/dev/", 5) &&
	    (zns_uuid_parse(s, uuid) || zns_registered_by_uuid(uuid, &reg, NULL)))
		return;
	args->dev = s;
	args->argc--;
	args->argv++;
}

int ctl_only_dev(const struct ctl_cmd *cmd, struct ctl_args *args)
{
	if (!args->dev && args->argc == 1)
		args->dev = *args->argv++, args->argc--;
	return args->argc ? ctl_usage(cmd, "one device at most") : 0;
}

static volatile sig_atomic_t caught;

/* timeout(1) sends every signal twice, so one that insists comes later than that. */
static void on_signal(int sig)
{
	static volatile uint64_t first_ns;
	uint64_t now = zns_mono_ns();

	if (caught && now - first_ns > INSIST_NS) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	if (!caught)
		first_ns = now;
	caught = sig;
}

void ctl_catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

int ctl_caught(struct zns_err *err)
{
	return caught ? zns_fail(err, -EINTR, "interrupted by signal %d", (int)caught) : 0;
}

int ctl_number(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

int ctl_duration(const char *s, uint64_t *out_s)
{
	static const struct {
		char unit;
		uint64_t s;
	} units[] = { { 0, 1 }, { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 604800 } };
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (*s < '0' || *s > '9' || errno || (*end && end[1]))
		return -EINVAL;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(units); i++) {
		if (units[i].unit != *end)
			continue;
		if (v > (uint64_t)INT64_MAX / 1000000000 / units[i].s)
			return -EINVAL;
		*out_s = v * units[i].s;
		return 0;
	}
	return -EINVAL;
}

int ctl_connect(const char *spec, struct zns_registered *reg, struct zns_broker *b, struct zns_err *err)
{
	int ret = zns_resolve_device(spec, reg, err);

	return ret ? ret : zns_broker_connect(reg, b, err);
}

int ctl_call(const char *spec, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	struct zns_registered reg;
	struct zns_broker b;
	int ret;

	ret = ctl_connect(spec, &reg, &b, err);
	if (ret)
		return ret;
	ret = zns_broker_call(&b, req, resp, err);
	zns_broker_close(&b);
	return ret;
}

static int ask_to_leave(const struct zns_registered *reg, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp;
	struct zns_broker b;
	struct pollfd p;
	int ret;

	ret = zns_broker_connect_running(reg, &b, err);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	req.has_quit = req.quit = 1;
	ret = zns_broker_call(&b, &req, &resp, err);
	if (!ret) {
		zns_pb__response__free_unpacked(resp, NULL);
		p = (struct pollfd){ .fd = b.fd, .events = POLLIN };
		poll(&p, 1, CLAIM_MS);
	}
	zns_broker_close(&b);
	return ret == -EPIPE ? 0 : ret;
}

int ctl_claim_device(const char *path, int *lock_fd, struct zns_err *err)
{
	struct zns_registered reg;
	int ret;

	if (!zns_registered_by_path(path, &reg, NULL)) {
		ret = ask_to_leave(&reg, err);
		if (ret)
			return ret;
	}
	return zns_broker_lock_device(path, CLAIM_MS, lock_fd, err);
}

int ctl_reserve(struct zns_dev *dev, bool take_over, struct zns_resv *r, struct zns_err *err)
{
	char machine[ZNS_MACHINE_STR];
	int ret = zns_machine_id(machine, err);

	if (!ret)
		ret = zns_resv_open(dev, machine, r, err);
	return ret ? ret : zns_resv_take(r, take_over, NULL, err);
}

const char *ctl_text(const char *s)
{
	static char ring[8][1024];
	static unsigned next;

	return zns_is_printable(s) ? s : zns_escape(s, ring[next++ % ZNS_ARRAY_SIZE(ring)], sizeof(ring[0]));
}

/* One character beyond ASCII as it is, or escaped; its bytes. */
static size_t put_character(FILE *f, const char *s)
{
	size_t n = 1;
	char one[5] = "";

	if (*s == 0x7f)
		return fprintf(f, "\\u007f"), 1;
	while (n < 4 && ((unsigned char)s[n] & 0xc0) == 0x80)
		n++;
	memcpy(one, s, n);
	if (zns_is_printable(one)) {
		fputs(one, f);
		return n;
	}
	/* C1 and the like are two or three bytes of good UTF-8; anything else is replaced byte by byte. */
	if (n == 2 && (unsigned char)s[0] == 0xc2)
		fprintf(f, "\\u%04x", (unsigned char)s[1]);
	else if (n == 3 && (unsigned char)s[0] >= 0xe2 && (unsigned char)s[0] != 0xed)
		fprintf(f, "\\u%04x", (s[0] & 0xf) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f));
	else
		return fprintf(f, "\\ufffd"), 1;
	return n;
}

/* The library escapes what JSON says must be; what is no UTF-8, or means something to a terminal, it passes on. */
static void put_json(FILE *f, const char *s)
{
	for (; *s; s++) {
		const char *end = s;

		while (*end && (unsigned char)*end < 0x7f)
			end++;
		fwrite(s, 1, (size_t)(end - s), f);
		if (!*end)
			break;
		s = end + put_character(f, end) - 1;
	}
	fputc('\n', f);
}

void ctl_write_json(FILE *f, struct json_object *o)
{
	put_json(f, json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

int ctl_print_json(struct json_object *o)
{
	ctl_write_json(stdout, o);
	return CTL_OK;	/* that it came out is main's to see */
}

uint32_t ctl_zones_in(const ZnsPb__Status *s, enum zns_zone_state state)
{
	uint32_t n = (size_t)state < s->n_zones_by_state ? s->zones_by_state[state] : 0;

	return state == ZNS_ZONE_IMP_OPEN ? n + ctl_zones_in(s, ZNS_ZONE_EXP_OPEN) : n;
}

struct json_object *ctl_json_zones(const ZnsPb__Status *s)
{
	static const enum zns_zone_state states[] = { ZNS_ZONE_EMPTY, ZNS_ZONE_IMP_OPEN, ZNS_ZONE_CLOSED, ZNS_ZONE_FULL,
						      ZNS_ZONE_READ_ONLY, ZNS_ZONE_OFFLINE };
	struct json_object *j = json_object_new_object();

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(states); i++)
		json_object_object_add(j, zns_zone_state_name(states[i]), json_object_new_int64(ctl_zones_in(s, states[i])));
	return j;
}

struct json_object *ctl_json_uuid(const ProtobufCBinaryData *id)
{
	char s[ZNS_UUID_STR];

	return id->len == ZNS_UUID_LEN ? json_object_new_string(zns_uuid_format(id->data, s)) : NULL;
}

struct json_object *ctl_json_time(int64_t ns)
{
	char s[32];

	return json_object_new_string(zns_format_time(ns, s, sizeof(s)));
}

struct json_object *ctl_json_u32s(const uint32_t *v, size_t nr)
{
	struct json_object *a = json_object_new_array();
	size_t i;

	for (i = 0; i < nr; i++)
		json_object_array_add(a, json_object_new_int64(v[i]));
	return a;
}

static void add_text(struct json_object *j, const char *key, const char *value)
{
	if (value)
		json_object_object_add(j, key, json_object_new_string(value));
}

static struct json_object *json_origin(const ZnsPb__Origin *o)
{
	struct json_object *j = json_object_new_object();

	if (o->kind)
		json_object_object_add(j, "kind", json_object_new_string(o->kind));
	if (o->host)
		json_object_object_add(j, "host", json_object_new_string(o->host));
	if (o->image_dir)
		json_object_object_add(j, "image_dir", json_object_new_string(o->image_dir));
	if (o->has_pid)
		json_object_object_add(j, "pid", json_object_new_int64(o->pid));
	add_text(j, "root", o->root);
	add_text(j, "checkpoint_name", o->checkpoint_name);
	if (o->has_ended)
		json_object_object_add(j, "ended", json_object_new_boolean(o->ended));
	return j;
}

struct json_object *ctl_json_key_id(const ProtobufCBinaryData *id)
{
	char str[ZNS_KEY_ID_STR];

	return id->len == ZNS_KEY_ID_BYTES ? json_object_new_string(zns_key_id_format(id->data, str)) : NULL;
}

struct json_object *ctl_json_checkpoint(const ZnsPb__Checkpoint *c)
{
	struct json_object *j = json_object_new_object(), *zones = json_object_new_array();
	size_t i;

	json_object_object_add(j, "id", ctl_json_uuid(&c->id));
	json_object_object_add(j, "container", json_object_new_string(c->container));
	json_object_object_add(j, "state", json_object_new_string(c->pages_only ? "pages-only" : "committed"));
	json_object_object_add(j, "created", ctl_json_time(c->created_ns));
	json_object_object_add(j, "created_ns", json_object_new_int64(c->created_ns));
	json_object_object_add(j, "bytes", json_object_new_int64(c->bytes));
	json_object_object_add(j, "page_bytes", json_object_new_int64(c->page_bytes));
	json_object_object_add(j, "nr_images", json_object_new_int64(c->nr_images));
	for (i = 0; i < c->n_zones; i++)
		if (!i || c->zones[i]->zone != c->zones[i - 1]->zone)
			json_object_array_add(zones, json_object_new_int64(c->zones[i]->zone));
	json_object_object_add(j, "zones", zones);
	json_object_object_add(j, "groups", ctl_json_u32s(c->groups, c->n_groups));
	json_object_object_add(j, "qos_requested_mibps",
			       c->has_qos_requested_mibps ? json_object_new_int64(c->qos_requested_mibps) : NULL);
	json_object_object_add(j, "qos_achieved_mibps",
			       c->has_qos_achieved_mibps ? json_object_new_double(c->qos_achieved_mibps) : NULL);
	json_object_object_add(j, "qos_max_mibps", c->has_qos_max_mibps ? json_object_new_int64(c->qos_max_mibps) : NULL);
	json_object_object_add(j, "shared_groups", json_object_new_int64(c->shared_groups));
	json_object_object_add(j, "metadata_groups", ctl_json_u32s(c->metadata_groups, c->n_metadata_groups));
	json_object_object_add(j, "packed", json_object_new_boolean(c->packed));
	json_object_object_add(j, "post_copy", json_object_new_boolean(c->post_copy));
	json_object_object_add(j, "data_phase_us", c->has_data_phase_us ? json_object_new_int64(c->data_phase_us) : NULL);
	json_object_object_add(j, "frozen_us", c->has_frozen_us ? json_object_new_int64(c->frozen_us) : NULL);
	json_object_object_add(j, "encrypted", json_object_new_boolean(c->crypt != NULL));
	json_object_object_add(j, "key_id", c->crypt && c->crypt->has_key_id ? ctl_json_key_id(&c->crypt->key_id) : NULL);
	json_object_object_add(j, "parent", c->has_parent ? ctl_json_uuid(&c->parent) : NULL);
	json_object_object_add(j, "pre_dump", json_object_new_boolean(c->pre_dump));
	if (c->origin) {
		add_text(j, "container_id", c->origin->container_id);
		add_text(j, "container_name", c->origin->container_name);
		add_text(j, "image", c->origin->image);
	}
	json_object_object_add(j, "origin", c->origin ? json_origin(c->origin) : NULL);
	return j;
}

struct json_object *ctl_json_restore(const ZnsPb__RestoreStat *r)
{
	struct json_object *j = json_object_new_object();

	json_object_object_add(j, "container", json_object_new_string(r->container));
	json_object_object_add(j, "checkpoint", ctl_json_uuid(&r->checkpoint));
	json_object_object_add(j, "started", ctl_json_time(r->started_ns));
	json_object_object_add(j, "ended", ctl_json_time(r->ended_ns));
	json_object_object_add(j, "bytes", json_object_new_int64(r->bytes));
	json_object_object_add(j, "data_phase_us", r->has_data_us ? json_object_new_int64(r->data_us) : NULL);
	json_object_object_add(j, "achieved_mibps", r->has_achieved_mibps ? json_object_new_double(r->achieved_mibps) : NULL);
	json_object_object_add(j, "qos_requested_mibps",
			       r->has_qos_requested_mibps ? json_object_new_int64(r->qos_requested_mibps) : NULL);
	json_object_object_add(j, "zones", json_object_new_int64(r->nr_zones));
	json_object_object_add(j, "groups", ctl_json_u32s(r->groups, r->n_groups));
	json_object_object_add(j, "shared_groups", json_object_new_int64(r->shared_groups));
	return j;
}

void ctl_print_restore(const ZnsPb__RestoreStat *r)
{
	char size[16], when[32], got[48] = "too short to rate";

	if (r->has_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f MiB/s", r->achieved_mibps);
	printf("%s at %s, from %u zones of %zu groups (%u shared), data phase %.2f s, %s\n",
	       zns_format_size(r->bytes, size, sizeof(size)), zns_format_time(r->ended_ns, when, sizeof(when)), r->nr_zones,
	       r->n_groups, r->shared_groups, (double)r->data_us / 1e6, got);
}
