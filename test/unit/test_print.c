/* SPDX-License-Identifier: GPL-2.0-only */
/* What znsctl makes of messages (JSON by fields, tables by columns) and of a command's options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>
#include "../../zns/defrag/layout.h"
#include "../../zns/ctl/show_tree.c"
#include "../../zns/memory/ctl/memory.h"

static uint8_t id[ZNS_UUID_LEN] = { 1, 2, 3 }, key[8] = { 0xab };

static void is(struct json_object *j, const char *text)
{
	assert_string_equal(json_object_to_json_string_ext(j, JSON_C_TO_STRING_PLAIN), text);
	json_object_put(j);
}

static void fields(void **state)
{
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__Origin o = ZNS_PB__ORIGIN__INIT;
	ZnsPb__CheckpointKey k = ZNS_PB__CHECKPOINT_KEY__INIT;
	ZnsPb__ZoneUse u = ZNS_PB__ZONE_USE__INIT, *uses[] = { &u };
	uint32_t groups[] = { 3, 5 };

	c.id = (ProtobufCBinaryData){ sizeof(id), id };
	c.container = (char *)"web";
	c.created_ns = 1700000000 * INT64_C(1000000000);
	c.bytes = 7;
	is(ctl_json(&c, "id container bytes"),
	   "{\"id\":\"01020300-0000-0000-0000-000000000000\",\"container\":\"web\",\"bytes\":7}");
	is(ctl_json(&c, "at=created_ns:time later= zero=page_bytes:pos"),
	   "{\"at\":\"2023-11-14T22:13:20Z\",\"later\":null,\"zero\":null}");
	/* absent: null, left out, its default */
	is(ctl_json(
		   &c,
		   "frozen_us frozen=frozen_us? shared_groups! packed! packed? origin origin? crypt:set"),
	   "{\"frozen_us\":null,\"shared_groups\":0,\"packed\":false,\"origin\":null,\"crypt\":false}");
	is(ctl_json(&c, "host=origin.host? image=origin.image key=crypt.key_id"),
	   "{\"image\":null,\"key\":null}");
	c.has_frozen_us = 1;
	c.frozen_us = 0;
	c.origin = &o;
	o.host = (char *)"h";
	c.crypt = &k;
	k.has_key_id = 1;
	k.key_id = (ProtobufCBinaryData){ sizeof(key), key };
	c.groups = groups;
	c.n_groups = 2;
	c.zones = uses;
	c.n_zones = 1;
	u.zone = 4;
	is(ctl_json(&c, "frozen_us origin{host? image?} key=crypt.key_id crypt:set"),
	   "{\"frozen_us\":0,\"origin\":{\"host\":\"h\"},\"key\":\"ab00000000000000\",\"crypt\":true}");
	is(ctl_json(&c, "groups both={bytes n=page_bytes} zones{zone}"),
	   "{\"groups\":[3,5],\"both\":{\"bytes\":7,\"n\":0},\"zones\":[{\"zone\":4}]}");
}

static FILE *printed;
static int stdout_fd;

static void print_begin(void)
{
	printed = tmpfile();
	stdout_fd = dup(STDOUT_FILENO);
	fflush(stdout);
	dup2(fileno(printed), STDOUT_FILENO);
}

/* What was printed since. */
static void print_end(char *text, size_t len)
{
	fflush(stdout);
	dup2(stdout_fd, STDOUT_FILENO);
	close(stdout_fd);
	rewind(printed);
	text[fread(text, 1, len - 1, printed)] = 0;
	fclose(printed);
}

/* What `ls --json` prints of @c, into @text. */
static void listed(const ZnsPb__Checkpoint *c, size_t n, char *text, size_t len)
{
	struct ctl_list l;

	print_begin();
	ctl_list_begin(&l, "all");
	for (size_t i = 0; i < n; i++)
		ctl_list_add(&l, c, ctl_checkpoint_fields, "pinned", true, "damaged", false, NULL);
	ctl_list_end(&l);
	print_end(text, len);
}

/* The sum of a container's checkpoints, in a list that ends where its memory does. */
static void sum_of_a_container(void **state)
{
	ZnsPb__Checkpoint c[3];
	const ZnsPb__Checkpoint **v = calloc(ZNS_ARRAY_SIZE(c), sizeof(*v));
	char text[200];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(c); i++) {
		zns_pb__checkpoint__init(&c[i]);
		c[i].container = (char *)(i == 1 ? "db" : "web");
		c[i].bytes = KIB(4) << i;
		v[i] = &c[i];
	}
	print_begin();
	show_container(v, ZNS_ARRAY_SIZE(c));
	print_end(text, sizeof(text));
	assert_string_equal(text, "web: 2 checkpoints, 20.0 KiB\n");
	free(v);
}

/* A list has the members that a single one has, and a terminal obeys nothing of it. */
static void list(void **state)
{
	static char text[65536];
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__ZoneUse u[3] = { ZNS_PB__ZONE_USE__INIT, ZNS_PB__ZONE_USE__INIT,
				ZNS_PB__ZONE_USE__INIT },
		       *uses[] = { &u[0], &u[1], &u[2] };
	struct json_object *all, *one, *first;

	u[2].zone = 9;
	c.zones = uses;
	c.n_zones = 3;
	c.id = (ProtobufCBinaryData){ sizeof(id), id };
	c.container = (char *)"/\"\\\b\n\t\x1f\x7f\xc2\x85\xff\xe2\x80\xae\xc3\xa4";
	c.created_ns = INT64_MIN;
	c.bytes = 12345678901234;
	c.has_qos_achieved_mibps = 1;
	c.qos_achieved_mibps = 1.5;
	listed(&c, 2, text, sizeof(text));
	assert_non_null(strstr(
		text,
		"\"container\": \"/\\\"\\\\\\b\\n\\t\\u001f\\u007f\\u0085\\ufffd\\u202e\xc3\xa4\",\n"));
	all = json_tokener_parse(text);
	assert_int_equal(json_object_array_length(json_object_object_get(all, "all")), 2);
	first = json_object_array_get_idx(json_object_object_get(all, "all"), 0);
	c.container = (char *)json_object_get_string(json_object_object_get(first, "container"));
	one = ctl_json_checkpoint(&c);
	json_object_object_add(one, "pinned", json_object_new_boolean(1));
	json_object_object_add(one, "damaged", json_object_new_boolean(0));
	assert_string_equal(json_object_to_json_string(first), json_object_to_json_string(one));
	json_object_put(one);
	json_object_put(all);
	listed(&c, 0, text, sizeof(text));
	assert_string_equal(text, "{\n  \"all\": []\n}\n");
}

/* No message was received, as from a device that does not answer. */
static void no_message(void **state)
{
	struct json_object *j = json_object_new_object();

	ctl_json_add(j, &zns_pb__status__descriptor, NULL,
		     "bytes_live waiting=nr_waiting! path? zones_by_state leases{pid}");
	is(j, "{\"bytes_live\":null,\"waiting\":null,\"zones_by_state\":[],\"leases\":[]}");
}

/* The lines that several commands share: each name that --json promises, of an empty message. */
static void lines(void **state)
{
	ZnsPb__RestoreStat r = ZNS_PB__RESTORE_STAT__INIT;
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;

	is(ctl_json_checkpoint(&c),
	   "{\"id\":null,\"container\":null,\"state\":\"committed\","
	   "\"created\":\"1970-01-01T00:00:00Z\",\"created_ns\":0,\"bytes\":0,"
	   "\"page_bytes\":0,\"nr_images\":0,\"zones\":[],\"groups\":[],"
	   "\"qos_requested_mibps\":null,\"qos_achieved_mibps\":null,"
	   "\"qos_max_mibps\":null,\"weight\":null,\"shared_groups\":0,"
	   "\"metadata_groups\":[],\"packed\":false,\"post_copy\":false,"
	   "\"data_phase_us\":null,\"frozen_us\":null,\"encrypted\":false,"
	   "\"key_id\":null,\"parent\":null,\"parent_bytes\":null,\"pre_dump\":false,"
	   "\"origin\":null}");
	is(ctl_json(&r, ctl_restore_fields),
	   "{\"container\":null,\"checkpoint\":null,"
	   "\"started\":\"1970-01-01T00:00:00Z\",\"ended\":\"1970-01-01T00:00:00Z\","
	   "\"bytes\":0,\"data_phase_us\":null,\"achieved_mibps\":null,"
	   "\"qos_requested_mibps\":null,\"zones\":0,\"groups\":[],"
	   "\"shared_groups\":0}");
}

static void expressions(void **state)
{
	char array[] = "text";
	const char *none = NULL;
	uint64_t large = UINT64_MAX;

	is(ctl_obj(J("a", array), J("n", none), J("u", large), J("i", -1), J("b", (bool)true),
		   JB("c", 2 > 3), JNULL("z")),
	   "{\"a\":\"text\",\"n\":null,\"u\":18446744073709551615,\"i\":-1,\"b\":true,\"c\":false,\"z\":null}");
	is(ctl_json_join(ctl_obj(J("a", 1)), ctl_obj(J("b", 2), J("a", 3))), "{\"a\":3,\"b\":2}");
}

static void cell(const void *row, const void *arg, char *out, size_t len)
{
	snprintf(out, len, "%s%s", (const char *)arg, ((const ZnsPb__ZoneLine *)row)->owner);
}

static void table(void **state)
{
	static const struct ctl_column columns[] = {
		{ "zone", 5, "index", NULL },
		{ "state", -7, "state:state", NULL },
		{ "size", 8, "wp:size", NULL },
		{ "owner", 0, NULL, cell },
		CTL_COLUMNS_END,
	};
	ZnsPb__ZoneLine z = ZNS_PB__ZONE_LINE__INIT;
	char line[CTL_ROW];

	z.index = 12;
	z.state = ZNS_ZONE_FULL;
	z.wp = MIB(2);
	z.owner = (char *)"web";
	assert_string_equal(ctl_row(columns, "  ", NULL, NULL, line),
			    " zone  state        size  owner");
	assert_string_equal(ctl_row(columns, "  ", &z, "by ", line),
			    "   12  full      2.0 MiB  by web");
}

static int parse(const char *a, const char *b, const struct ctl_opt *opts, struct ctl_args *args)
{
	static const struct ctl_cmd cmd = { .name = "test", .args = "", .brief = "", .help = "" };
	static char *argv[4]; /* what is left of it is in @args */

	argv[0] = (char *)"znsctl test";
	argv[1] = (char *)a;
	argv[2] = (char *)b;
	*args = (struct ctl_args){ 0 };
	optind = 0;
	return ctl_parse(&cmd, b ? 3 : 2, argv, opts, args);
}

static void options(void **state)
{
	static const char *const wrong[] = { "--n=0",    "--n=10",   "--n=x",   "--for=0",
					     "--for=5y", "--rate=0", "--text=", "--no" };
	bool flag = false, verbose = false;
	const char *text = NULL;
	uint64_t n = 7, s = 0;
	uint32_t rate = 0;
	const struct ctl_opt opts[] = { CTL_FLAG("flag", &flag),
					CTL_TEXT("text", &text),
					CTL_NUMBER("n", &n, 1, 9, "\"%s\" is none"),
					CTL_DURATION("for", &s, 1),
					CTL_RATE("rate", &rate),
					CTL_FLAG("verbose", &verbose),
					CTL_DEV,
					CTL_OPTS_END };
	struct ctl_args args;

	assert_int_equal(parse("--flag", "x", opts, &args), 0);
	assert_true(flag && args.argc == 1 && !strcmp(args.argv[0], "x"));
	assert_int_equal(parse("-v", NULL, opts, &args), 0);
	assert_true(verbose);
	assert_int_equal(parse("--text", "y", opts, &args), 0);
	assert_string_equal(text, "y");
	assert_int_equal(parse("--n", "9", opts, &args), 0);
	assert_int_equal(n, 9);
	assert_int_equal(parse("--for", "2h", opts, &args), 0);
	assert_int_equal(s, 7200);
	assert_int_equal(parse("--rate", "2GiB/s", opts, &args), 0);
	assert_int_equal(rate, 2048);
	assert_int_equal(parse("--dev", "emu:/x", opts, &args), 0);
	assert_string_equal(args.dev, "emu:/x");
	/* A wrong argument changes no setting, and gives an error. */
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(wrong); i++) {
		assert_int_equal(parse(wrong[i], NULL, opts, &args), -1);
		assert_int_equal(args.code, CTL_USAGE);
	}
	assert_true(n == 9 && s == 7200 && rate == 2048);
}

static void layouts(void **state)
{
	struct zns_scatter_zone zones[] = { { 9, 3, KIB(4), false },
					    { 5, 1, KIB(4), false },
					    { 6, 2, KIB(6), false },
					    { 7, 2, KIB(2), false } };
	struct layout l = {
		.s = { .zones = zones, .nr_zones = 4, .nr_groups = 5, .width = 4 },
		.zones = zones,
		.groups = 3,
		.read_bytes = KIB(16),
		.page_bytes = KIB(16),
		.rate = 0.95,
		.read_mibps = 100,
	};
	ZnsPb__RestoreStat last = ZNS_PB__RESTORE_STAT__INIT;
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;
	char text[1000];

	/* the fullest group first, and the lower number of two */
	c.id = last.checkpoint = (ProtobufCBinaryData){ sizeof(id), id };
	print_begin();
	layout_print(&l, &c, NULL);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"layout      95 % of what 4 groups could give: about 380 MiB/s of 400\n"
		"            in groups 2:8.0 KiB 1:4.0 KiB 3:4.0 KiB\n"
		"            written to 4 zones at once, of which some are in the same group\n");
	/* one line for whatever else there is to say, in this order */
	l.s.width = 3;
	l.read_bytes = KIB(24);
	l.page_bytes = KIB(32);
	l.shorts = 5;
	l.short_bytes = KIB(10);
	l.runs = 4;
	l.run_bytes = KIB(64);
	l.superseded = KIB(3);
	l.rate = 0.6;
	last.has_achieved_mibps = 1;
	last.achieved_mibps = 77;
	c.has_parent = 1;
	print_begin();
	layout_print(&l, &c, &last);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"layout      45 % of what 3 groups could give: about 135 MiB/s of 300\n"
		"            measured at its last restore: 77 MiB/s\n"
		"            in groups 2:8.0 KiB 1:4.0 KiB 3:4.0 KiB\n"
		"            5 units of less than 64 KiB, 10.0 KiB together: pages of flash are read whole, 25 % in vain\n"
		"            composed of 4 runs of 16.0 KiB: `znsctl flatten` puts them in order\n"
		"            3.0 KiB superseded while it was dumped: `znsctl flatten` gives that room back\n"
		"            its own pages only: `znsctl flatten` writes it anew without its parents\n"
		"            `znsctl compact --defrag` says what would pay\n");
	/* a restore of another version was measured */
	l = (struct layout){ .s = { .zones = zones, .nr_zones = 1, .nr_groups = 5, .width = 2 },
			     .zones = zones,
			     .groups = 1,
			     .rate = 0.9,
			     .read_mibps = 100 };
	last.checkpoint.len--;
	print_begin();
	layout_print(&l, &c, &last);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"layout      90 % of what 2 groups could give: about 180 MiB/s of 200\n"
		"            in groups 3:4.0 KiB\n"
		"            written to 2 zones at once, of which some are in the same group\n"
		"            its own pages only: `znsctl flatten` writes it anew without its parents\n");
}

/* Of no use here: where a status comes from. */
int memory_status(const char *name, ZnsPb__MemoryAnswer **out, struct zns_err *e)
{
	return zns_fail(e, -ENOENT, "%s", name);
}

/* What `memory status NAME` prints: a context of which nothing is to be said, and one that has everything. */
static void memory(void **state)
{
	ZnsPb__MemoryStatus s = ZNS_PB__MEMORY_STATUS__INIT;
	ZnsPb__MemorySkipped skip = ZNS_PB__MEMORY_SKIPPED__INIT;
	ZnsPb__MemoryProcess p = ZNS_PB__MEMORY_PROCESS__INIT, *list[] = { &p };
	char text[4000];

	s.name = (char *)"web";
	s.active_ns = INT64_MAX; /* not idle */
	s.dram = MIB(8);
	s.resident = MIB(4);
	s.evicted = MIB(2);
	s.pid = 7;
	s.skipped = &skip;
	print_begin();
	memory_print(&s, true);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"web                   active           DRAM  4.0 MiB of  8.0 MiB  on zones  2.0 MiB  0 processes  faults 0\n"
		"  written 0 units of 64 KiB, read 0; 0 evictions ended by a write, 0 in all\n"
		"  0 evictions without a write; 0 B in memory are as on zones\n"
		"  nothing is read ahead\n"
		"  pager PID 7, 0 before it\n");
	s.encrypted = s.predict = 1;
	s.checkpoint = (char *)"0badc0de";
	s.unread = KIB(64);
	s.warning = (char *)"a warning";
	s.missing = (char *)"what is missing";
	s.lost_units = 3;
	s.auto_total = MIB(64);
	s.auto_min = MIB(1);
	s.idle_ms = 90000;
	s.record_units = 2;
	s.wakes = 5;
	s.activations = 6;
	s.record_left_out = 4;
	s.record_missed = 1;
	s.processes = list;
	s.n_processes = 1;
	p.pid = 8;
	p.why = (char *)" (it is locked)";
	skip.locked = KIB(4);
	s.qos_mibps = 100;
	s.write_rate = MIB(3);
	s.moved_units = 9;
	s.prefetched = 20;
	s.prefetch_used = 3;
	s.prefetch_unused = 1;
	s.has_fault_ns_p50 = s.has_fault_ns_p99 = 1;
	s.fault_ns_p50 = 200000;
	s.fault_ns_p99 = 900000;
	s.has_attach_stop_ns = 1;
	s.attach_stop_ns = 1500000;
	s.stops = 2;
	s.stopped_ns = 2500000;
	s.takeovers = 1;
	print_begin();
	memory_print(&s, true);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"web                   active           DRAM  4.0 MiB of  8.0 MiB  on zones  2.0 MiB  1 process  faults 0\n"
		"  needs checkpoint 0badc0de: 64.0 KiB are there alone\n"
		"  what is on zones is encrypted\n"
		"  a warning\n"
		"  what is missing\n"
		"  3 units could not be read back: their processes got a signal\n"
		"  its budget is its part of 64.0 MiB, at least 1.0 MiB\n"
		"  hibernates after 90s without activity\n"
		"  its last activations used 128.0 KiB; 5 wakes and 6 activations so far; of a sample of 4 units 25 % were used\n"
		"  PID 8        resident      0 B  on zones      0 B  not evicted (it is locked)\n"
		"  stays in memory: locked 4.0 KiB, shared 0 B, files 0 B, other 0 B\n"
		"  written 0 units of 64 KiB, read 0; 0 evictions ended by a write, 0 in all\n"
		"  0 evictions without a write; 0 B in memory are as on zones\n"
		"  writes 3.0 MiB/s of 100 MiB/s; 9 units were moved to empty their zones\n"
		"  20 units were read ahead; of a sample of 4 75 % were used\n"
		"  a fault took 200 us, one of a hundred more than 900 us\n"
		"  its threads stood still for 1.5 ms at most, in 2 stops for 2.5 ms\n"
		"  pager PID 7, 1 before it\n");
	/* in a list: what is wrong, and no more */
	print_begin();
	memory_print(&s, false);
	print_end(text, sizeof(text));
	assert_string_equal(
		text,
		"web                   active           DRAM  4.0 MiB of  8.0 MiB  on zones  2.0 MiB  1 process  faults 0\n"
		"  needs checkpoint 0badc0de: 64.0 KiB are there alone\n"
		"  a warning\n"
		"  what is missing\n"
		"  3 units could not be read back: their processes got a signal\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields),  cmocka_unit_test(sum_of_a_container),
		cmocka_unit_test(list),    cmocka_unit_test(no_message),
		cmocka_unit_test(lines),   cmocka_unit_test(expressions),
		cmocka_unit_test(table),   cmocka_unit_test(options),
		cmocka_unit_test(layouts), cmocka_unit_test(memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
