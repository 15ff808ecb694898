/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/docker without Docker: files as dockerd writes them, settings and their order, rules, what is
 * still needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "../../zns/docker/report.c"
#include "zns/config.h"
#include "zns/handle.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static char top[64];
static char data_root[80];
static const struct docker_runtime ours = { .docker_root = data_root };

static const char *at(const char *fmt, ...)
{
	static char path[4][512];
	static int n;
	va_list ap;
	int len;

	n = (n + 1) % 4;
	len = snprintf(path[n], sizeof(path[n]), "%s/", top);
	va_start(ap, fmt);
	vsnprintf(path[n] + len, sizeof(path[n]) - (size_t)len, fmt, ap);
	va_end(ap);
	return path[n];
}

static void put(const char *path, const char *text)
{
	assert_int_equal(zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600), 0);
}

static void mkdirs(const char *path)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "mkdir -p %s", path);
	assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
	strcpy(top, "/tmp/zns-test-docker-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	setenv("ZNS_CONFIG", at("conf"), 1);
	setenv("ZNS_RUN", at("run"), 1);
	snprintf(data_root, sizeof(data_root), "%s/root", top);
	mkdirs(at("conf"));
	mkdirs(at("run"));
	mkdirs(at("root/containers/" ID_A "/checkpoints"));
	mkdirs(at("bundle"));
	return 0;
}

static int teardown(void **state)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	return system(cmd);
}

static void described(const char *name, const char *image, const char *labels, const char *env)
{
	char text[2000];

	snprintf(text, sizeof(text),
		 "{\"ID\":\"" ID_A
		 "\",\"Name\":\"/%s\",\"Config\":{\"Image\":\"%s\",\"Labels\":%s,\"Env\":%s}}",
		 name, image, labels, env);
	put(at("root/containers/" ID_A "/config.v2.json"), text);
}

static void config(const char *labels, const char *env)
{
	described("web", "nginx:1", labels, env);
}

static void bundle(const char *annotations, const char *env)
{
	char text[2000];

	snprintf(text, sizeof(text),
		 "{\"process\":{\"env\":%s},\"annotations\":%s,\"mounts\":[{\"source\":\"proc\"},"
		 "{\"source\":\"%s/root/containers/" ID_A
		 "/hosts\",\"destination\":\"/etc/hosts\"}]}",
		 env, annotations, top);
	put(at("bundle/config.json"), text);
}

/* The value of @key and where it came from, "value/source"; "-" if it is not set. */
static const char *setting(enum docker_key key)
{
	static char out[400];
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container c;
	struct docker_settings s;

	assert_int_equal(docker_container_read(&ours, at("bundle"), ID_A, &c, &err), 0);
	if (docker_settings_read(&c, &s, &err))
		snprintf(out, sizeof(out), "! %s", err.msg);
	else
		snprintf(out, sizeof(out), s.source[key] ? "%s/%s" : "-", s.value[key],
			 s.source[key]);
	docker_container_fini(&c);
	return out;
}

#define X50 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define POD(name) "\"io.kubernetes.cri.sandbox-name\":\"" name "\","

static void container(void **state)
{
	static const char *const no_id[] = { "", "..", "../x", "a/b", "/", "a b", "\xc3\xa4" };
	static const struct {
		const char *annotation, *name;
	} pods[] = { { POD("web"), "shop/web/app" }, { "", ID_A }, { POD(X50 X50 X50 X50), ID_A } };
	static const struct docker_runtime k8s = { "/nowhere", "/run/containerd/runc/k8s.io" };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container c;
	char text[1000];

	bundle("{}", "[]");
	config("{}", "[]");
	assert_int_equal(docker_container_read(&ours, at("bundle"), ID_A, &c, &err), 0);
	assert_string_equal(c.kind, "docker");
	assert_string_equal(c.name, "web");
	assert_string_equal(c.image, "nginx:1");
	assert_string_equal(c.root, at("root"));
	docker_container_fini(&c);
	/* the bundle of another engine: its config.json is enough; for Docker it is not trusted */
	put(at("bundle/config.json"),
	    "{\"mounts\":[{\"source\":\"/x/containers/short/hosts\"},3,{}]}");
	assert_int_equal(docker_container_read(&(struct docker_runtime){ top, NULL }, at("bundle"),
					       ID_A, &c, &err),
			 0);
	assert_string_equal(c.kind, "runc");
	assert_string_equal(c.name, ID_A);
	assert_string_equal(c.root, "");
	docker_container_fini(&c);
	/* a kubelet's, through containerd; no name of a pod, or too long a one, leaves the id */
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(pods); i++) {
		snprintf(
			text, sizeof(text),
			"{\"annotations\":{\"io.kubernetes.cri.container-type\":\"container\",%s"
			"\"io.kubernetes.cri.sandbox-namespace\":\"shop\",\"io.kubernetes.cri.container-name\":\"app\","
			"\"io.kubernetes.cri.image-name\":\"nginx:1\"}}",
			pods[i].annotation);
		put(at("bundle/config.json"), text);
		assert_int_equal(docker_container_read(&k8s, at("bundle"), ID_A, &c, &err), 0);
		assert_string_equal(c.kind, "cri");
		assert_string_equal(c.name, pods[i].name);
		assert_string_equal(c.image, "nginx:1");
		docker_container_fini(&c);
	}
	bundle("{}", "[]");
	put(at("root/containers/" ID_A "/config.v2.json"), "{\"Name\":");
	assert_int_equal(docker_container_read(&ours, at("bundle"), ID_A, &c, &err), -EBADMSG);
	docker_container_fini(&c);
	assert_int_equal(docker_container_read_root(data_root, ID_A, &c, &err), -EBADMSG);
	docker_container_fini(&c);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(no_id); i++) {
		assert_int_equal(docker_container_read(&ours, at("bundle"), no_id[i], &c, &err),
				 -EINVAL);
		docker_container_fini(&c);
		assert_int_equal(docker_container_read_root(data_root, no_id[i], &c, &err),
				 -EINVAL);
		docker_container_fini(&c);
	}
	assert_int_equal(docker_container_read(&ours, at("nothing"), ID_A, &c, &err), -ENOENT);
	docker_container_fini(&c);
}

static void bad_json(void **state)
{
	static const char *const bad[] = { "", "{", "{\"a\":1,}", "{} x", "\xff" };
	struct zns_err err = ZNS_ERR_INIT;
	struct json_object *o;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		put(at("j"), bad[i]);
		assert_int_equal(zns_json_read(at("j"), &o, &err), -EBADMSG);
		assert_null(o);
	}
	put(at("j"), " {\"a\": [1, \"b\"]} \n");
	assert_int_equal(zns_json_read(at("j"), &o, &err), 0);
	json_object_put(o);
}

static void order(void **state)
{
	char text[400];

	bundle("{}", "[]");
	config("{}", "[]");
	assert_string_equal(setting(DOCKER_QOS), "-");
	put(at("conf/zns.conf"), "docker-qos = 10\n");
	assert_string_equal(setting(DOCKER_QOS), "10/default");
	put(at("conf/docker.rules"),
	    "name=db qos=19\nname=db image=nginx:? qos=18\nname=w* image=nginx:? qos=20 admission=wait=3 # first\nname=web qos=21 alloc=dynamic\n");
	assert_string_equal(setting(DOCKER_QOS), "20/rule");
	assert_string_equal(setting(DOCKER_ADMISSION), "wait=3/rule");
	assert_string_equal(setting(DOCKER_ALLOC), "dynamic/rule");
	bundle("{}", "[\"ZNS_QOS=29\",\"ZNS_QOS=30\",\"ZNS_DEV=/dev/x\",\"ZNS_QOSX=1\"]");
	assert_string_equal(setting(DOCKER_QOS), "30/environment");
	assert_string_equal(setting(DOCKER_DEV), "-");
	config("{\"zns.qos\":\"40\",\"zns.dev\":\"emu:/x\"}", "[]");
	assert_non_null(strstr(setting(DOCKER_QOS), "label zns.dev: ")); /* not registered */
	assert_int_equal(zns_register((const uint8_t[ZNS_UUID_LEN]){ 7 }, "emu:/x", NULL), 0);
	assert_string_equal(setting(DOCKER_QOS), "40/label");
	assert_string_equal(setting(DOCKER_DEV), "emu:/x/label");
	bundle("{\"zns.qos\":\"50\"}", "[\"ZNS_QOS=30\"]");
	assert_string_equal(setting(DOCKER_QOS), "50/annotation");
	put(at("conf/web.conf"),
	    "# comment\nzns-qos 59\nzns-qos 60 # last\ntcp-established\nzns-admission \n");
	snprintf(text, sizeof(text),
		 "{\"zns.qos\":\"50\",\"org.criu.config\":\"%s/conf/web.conf\"}", top);
	bundle(text, "[]");
	assert_string_equal(setting(DOCKER_QOS), "60/org.criu.config");
	assert_string_equal(setting(DOCKER_ADMISSION), "wait=3/rule");
	assert_string_equal(setting(DOCKER_LIVE), "-");
	put(at("conf/web.conf"), "zns-live\nzns-live=durable # last\nzns-livelier\n");
	assert_string_equal(setting(DOCKER_LIVE), "durable/org.criu.config");
	put(at("conf/web.conf"), "zns-live=no\n");
	assert_string_equal(setting(DOCKER_LIVE), "no/org.criu.config");
	put(at("conf/zns.conf"), "docker-qos = 10\ndocker-restore-qos = 70\n");
	bundle("{}", "[\"ZNS_RESTORE_QOS=5\",\"ZNS_RESTORE-QOS=5\"]");
	assert_string_equal(setting(DOCKER_RESTORE_QOS), "70/default");
	bundle("{\"zns.restore-qos\":\"2GiB/s\"}", "[]");
	assert_string_equal(setting(DOCKER_RESTORE_QOS), "2GiB/s/annotation");
	bundle("{\"zns.weight\":\"300\"}", "[]");
	assert_string_equal(setting(DOCKER_WEIGHT), "300/annotation");
	bundle("{}", "[\"ZNS_WEIGHT=300\"]"); /* an image shall not choose it */
	assert_string_equal(setting(DOCKER_WEIGHT), "-");
	put(at("conf/docker.rules"),
	    "image=other weight=900\nname=w* weight=400\nname=* weight=200\n");
	assert_string_equal(setting(DOCKER_WEIGHT), "400/rule");
	bundle("{\"zns.weight\":\"300\"}", "[]");
	assert_string_equal(setting(DOCKER_WEIGHT), "300/annotation");
	put(at("conf/docker.rules"), "name=* ghost-limit=1G\n");
	bundle("{}", "[\"ZNS_GHOST_LIMIT=5M\"]"); /* nor how large a checkpoint may be */
	assert_string_equal(setting(DOCKER_GHOST_LIMIT), "1G/rule");
	bundle("{\"zns.ghost-limit\":\"64M\"}", "[]");
	assert_string_equal(setting(DOCKER_GHOST_LIMIT), "64M/annotation");
	put(at("conf/docker.rules"), "name=* cgroup=container\n");
	bundle("{}", "[\"ZNS_CGROUP=leave\"]"); /* nor the cgroup that is charged */
	assert_string_equal(setting(DOCKER_CGROUP), "container/rule");
	put(at("conf/docker.rules"), "name=* network-lock=iptables\n");
	bundle("{}", "[\"ZNS_NETWORK_LOCK=skip\"]"); /* nor how the network is locked */
	assert_string_equal(setting(DOCKER_NETWORK_LOCK), "iptables/rule");
	bundle("{\"zns.network-lock\":\"nftables\"}", "[]");
	assert_string_equal(setting(DOCKER_NETWORK_LOCK), "nftables/annotation");
	put(at("conf/docker.rules"), "\n");
	bundle("{}", "[\"ZNS_LIVE=yes\"]");
	assert_string_equal(setting(DOCKER_LIVE), "-");
	put(at("conf/zns.conf"), "docker-qos = 10\ndocker-live = yes\n");
	assert_string_equal(setting(DOCKER_LIVE), "yes/default");
	config("{\"zns.live\":\"no\",\"zns.dev\":\"emu:/x\"}", "[]");
	assert_string_equal(setting(DOCKER_LIVE), "no/label");
	bundle("{\"org.criu.config\":\"/etc/criu/nowhere.conf\"}", "[]");
	assert_non_null(strstr(setting(DOCKER_QOS), "nowhere.conf"));
	bundle("{\"org.criu.config\":\"/nowhere.conf\"}", "[]");
	assert_non_null(strstr(setting(DOCKER_QOS), "/nowhere.conf is not in "));
}

/* A container of 100 MiB: what it may be sure of. */
static void memory_auto(const struct docker_container *c)
{
	static const struct {
		const char *conf, *tenants;
		uint64_t asked, min;
		int ret;
		const char *says;
	} v[] = {
		{ "", "", 0, 0, -ENOENT, "no memory-dram" },
		{ "memory-dram = 0%\n", "", 0, 0, -EINVAL, "1% to 100%" },
		{ "memory-dram = 101%\n", "", 0, 0, -EINVAL, "1% to 100%" },
		{ "memory-dram = x%\n", "", 0, 0, -EINVAL, "1% to 100%" },
		{ "memory-dram = 64M\n", "", 0, MIB(16), 0, NULL },
		{ "memory-dram = 64M\n", "", MIB(3), MIB(3), 0, NULL },
		{ "memory-dram = 64M\n", "", MIB(65), 0, -EINVAL, "above memory-dram of 64 MiB" },
		{ "memory-dram = 64G\n", "", MIB(101), 0, -EINVAL,
		  "above the container's memory limit of 100 MiB" },
		{ "memory-dram = 64M\n", "name shop/* max-memory-min=8M\n", 0, MIB(8), 0, NULL },
		{ "memory-dram = 64M\n", "name shop/* max-memory-min=8M\n", MIB(8), MIB(8), 0,
		  NULL },
		{ "memory-dram = 64M\n", "name shop/* max-memory-min=8M\n", MIB(9), 0, -EPERM,
		  "the ceiling of `name shop/*` is 8 MiB (tenants.conf:1)" },
		{ "memory-dram = 64M\n", "name other max-memory-min=8M\n", MIB(9), MIB(9), 0,
		  NULL },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		struct docker_memory m = { .wanted = true, .machine = true, .min = v[i].asked };
		struct zns_err err = ZNS_ERR_INIT;

		put(at("conf/zns.conf"), v[i].conf);
		put(at("conf/tenants.conf"), v[i].tenants);
		assert_int_equal(docker_memory_size(c, &m, &err), v[i].ret);
		if (v[i].says)
			assert_non_null(strstr(err.msg, v[i].says));
		else
			assert_int_equal(m.min, v[i].min);
		if (!v[i].ret)
			assert_int_equal(m.total, MIB(64));
	}
	unlink(at("conf/tenants.conf"));
	put(at("conf/zns.conf"), "");
}

static void memory(void **state)
{
	static const struct {
		const char *value;
		struct docker_memory m;
	} good[] = {
		{ "no", { .wanted = false } },
		{ "never", { .wanted = false } },
		{ "1M", { .wanted = true, .dram = MIB(1) } },
		{ "30%", { .wanted = true, .percent = 30 } },
		{ "100%,hibernate:10m", { .wanted = true, .percent = 100, .idle_s = 600 } },
		{ "hibernate:90,2G", { .wanted = true, .dram = GIB(2), .idle_s = 90 } },
		{ "auto", { .wanted = true, .machine = true } },
		{ "hibernate:90,auto", { .wanted = true, .machine = true, .idle_s = 90 } },
	};
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container c = { .name = "shop/web/app" };
	struct docker_memory m;
	char name[256];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(good); i++) {
		assert_int_equal(docker_memory_parse(good[i].value, "here", &m, &err), 0);
		assert_int_equal(m.wanted, good[i].m.wanted);
		assert_int_equal(m.dram, good[i].m.dram);
		assert_int_equal(m.percent, good[i].m.percent);
		assert_int_equal(m.idle_s, good[i].m.idle_s);
		assert_int_equal(m.machine, good[i].m.machine);
	}
	docker_memory_name(&c, name, sizeof(name));
	assert_string_equal(name, "shop+web+app");
	c.spec = json_tokener_parse(
		"{\"linux\":{\"resources\":{\"memory\":{\"limit\":104857600}}}}");
	m = (struct docker_memory){ .wanted = true, .percent = 10 };
	assert_int_equal(docker_memory_size(&c, &m, &err), 0);
	assert_int_equal(m.dram, 10485760);
	m = (struct docker_memory){ .wanted = true, .idle_s = 1 };
	assert_int_equal(docker_memory_size(&c, &m, &err), 0);
	assert_int_equal(m.dram, 94371840);
	m = (struct docker_memory){ .wanted = true, .dram = 104857601 };
	assert_int_equal(docker_memory_size(&c, &m, &err), -EINVAL);
	memory_auto(&c);
	json_object_put(c.spec);
	/* a rule that forbids it applies to a container that asks for it, and to no other */
	put(at("conf/docker.rules"), "name=* memory=never\n");
	put(at("conf/zns.conf"), "");
	bundle("{}", "[]");
	config("{\"zns.memory\":\"64M\"}", "[]");
	assert_non_null(strstr(setting(DOCKER_MEMORY), "docker.rules:1: this container may not"));
	config("{\"zns.memory\":\"no\"}", "[]");
	assert_string_equal(setting(DOCKER_MEMORY), "no/label");
	config("{}", "[\"ZNS_MEMORY=64M\"]");
	assert_string_equal(setting(DOCKER_MEMORY), "never/rule");
	put(at("conf/docker.rules"), "");
	put(at("conf/zns.conf"), "docker-memory = 20%\ndocker-memory-predict = off\n");
	assert_string_equal(setting(DOCKER_MEMORY), "20%/default");
	assert_string_equal(setting(DOCKER_MEMORY_PREDICT), "off/default");
	put(at("conf/zns.conf"), "");
}

/* A rule for containers of Docker fits no pod of a namespace of such a name. */
static void rules_of_names(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool fits;
	} names[] = {
		{ "worker-*", "worker-1", true },      { "worker-*", "worker-1/pod/app", false },
		{ "*or*", "worker-1/pod/app", false }, { "pod*", "podman/web", false },
		{ "podman/*", "podman/web", true },    { "shop/*", "shop/pod/app", true },
		{ "*", "shop/pod/app", true },         { "*", "web", true },
		{ "shop/*", "shop", false },
	};
	struct zns_err err = ZNS_ERR_INIT;
	char text[100];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(names); i++) {
		struct docker_container of = { .kind = "cri" };
		struct docker_settings s = { 0 };

		strcpy(of.name, names[i].name);
		snprintf(text, sizeof(text), "name=%s qos=5\n", names[i].pattern);
		put(at("conf/docker.rules"), text);
		assert_int_equal(docker_rules(&of, &s, &err), 0);
		if ((s.source[DOCKER_QOS] != NULL) != names[i].fits)
			fail_msg("%s, %s", names[i].pattern, names[i].name);
	}
	put(at("conf/docker.rules"), "");
}

static const char *run_by(const char *image)
{
	char text[1000];

	snprintf(text, sizeof(text),
		 "{\"ID\":\"" ID_A "\",\"Name\":\"/web\",\"Image\":\"sha256:" ID_B
		 "\",\"Driver\":\"overlay2\",\"Config\":{\"Image\":\"%s\"}}",
		 image);
	put(at("root/containers/" ID_A "/config.v2.json"), text);
	return setting(DOCKER_QOS);
}

/* A container that names its image by id is still under the rules for that image. */
static void image_by_id(void **state)
{
	put(at("conf/zns.conf"), "");
	put(at("conf/docker.rules"), "image=nginx:* qos=7\nname=* qos=9\n");
	bundle("{}", "[]");
	mkdirs(at("root/image/overlay2"));
	put(at("root/image/overlay2/repositories.json"),
	    "{\"Repositories\":{\"alpine\":{\"alpine:3\":\"sha256:" ID_A
	    "\"},\"nginx\":{\"nginx:1\":\"sha256:" ID_B "\",\"nginx:2\":3}}}");
	assert_string_equal(run_by("nginx:1"), "7/rule");
	assert_string_equal(run_by("sha256:" ID_B), "7/rule");
	assert_string_equal(run_by(ID_B), "7/rule");
	assert_string_equal(run_by("bbbb"), "7/rule");
	assert_string_equal(run_by("other:1"), "9/rule");
	put(at("conf/docker.rules"), "image=alpine:* qos=7\nname=* qos=9\n");
	assert_string_equal(run_by(ID_B), "9/rule");
	put(at("root/image/overlay2/repositories.json"), "{\"Repositories\":[]}");
	assert_string_equal(run_by(ID_B), "9/rule");
	put(at("conf/docker.rules"), "");
}

/* The example that is installed, word for word. */
static void example_rules(void **state)
{
	cleanup_free char *text = NULL;
	size_t len;
	FILE *file = fopen("Documentation/user/examples/docker.rules", "r");

	assert_non_null(file);
	text = calloc(1, 65536);
	assert_non_null(text);
	len = fread(text, 1, 65535, file);
	fclose(file);
	assert_true(len > 0);
	put(at("conf/zns.conf"), "");
	put(at("conf/docker.rules"), text);
	bundle("{}", "[]");
	config("{}", "[]");
	assert_string_equal(setting(DOCKER_QOS), "100/rule");
	assert_string_equal(setting(DOCKER_ADMISSION), "-");
	described("db-1", "postgres:16", "{}", "[]");
	assert_string_equal(setting(DOCKER_QOS), "500/rule");
	assert_string_equal(setting(DOCKER_ADMISSION), "wait=30/rule");
	assert_string_equal(setting(DOCKER_LIVE), "yes/rule");
	assert_string_equal(setting(DOCKER_WEIGHT), "300/rule");
	assert_string_equal(setting(DOCKER_CRIU), "tcp-established/rule");
	described("db-1", "postgres:16", "{\"zns.memory\":\"64M\"}", "[]");
	assert_non_null(strstr(setting(DOCKER_MEMORY), "this container may not"));
	described("batch-7", "x", "{}", "[]");
	assert_string_equal(setting(DOCKER_QOS), "50/rule");
	assert_string_equal(setting(DOCKER_WEIGHT), "-");
	assert_string_equal(setting(DOCKER_MEMORY), "auto/rule");
	put(at("conf/docker.rules"), "");
}

static void bad_values(void **state)
{
	static const struct {
		const char *labels, *says;
	} v[] = {
		{ "{\"zns.qos\":\"0\"}", "label zns.qos: \"0\" is no bandwidth" },
		{ "{\"zns.qos\":\"\"}", "label zns.qos: a value of 1 to 255" },
		{ "{\"zns.qos\":\"5\\nzns-dev x\"}", "a character that is not allowed" },
		{ "{\"zns.restore-qos\":\"0\"}", "label zns.restore-qos: \"0\" is no bandwidth" },
		{ "{\"zns.admission\":\"wait=\"}", "\"wait=\" is not known" },
		{ "{\"zns.admission\":\"wait=1s\"}", "\"wait=1s\" is not known" },
		{ "{\"zns.stripe\":\"much\"}", "\"much\" is no size" },
		{ "{\"zns.stripe\":\"3\"}", "\"3\" is no size" },
		{ "{\"zns.stripe\":\"8M\"}", "\"8M\" is no size" },
		{ "{\"zns.dev\":\"./x\"}", "give an absolute path" },
		{ "{\"zns.dev\":\"/dev/none\"}", "label zns.dev: " },
		{ "{\"zns.weight\":\"99\"}",
		  "label zns.weight: \"99\" is no weight: 100 to 10000" },
		{ "{\"zns.live\":\"1\"}",
		  "label zns.live: \"1\" is not known: auto, yes, durable or no" },
		{ "{\"zns.live\":\"yes\\nzns-dev x\"}", "a character that is not allowed" },
		{ "{\"zns.ghost-limit\":\"much\"}", "label zns.ghost-limit: \"much\" is no size" },
		{ "{\"zns.ghost-limit\":\"5M\\next-unix-sk\"}", "a character that is not allowed" },
		{ "{\"zns.criu\":\"tcp-established,root\"}", "\"root\" is not known" },
		{ "{\"zns.criu\":\",\"}", "\"\" is not known" },
		{ "{\"zns.memory\":\"1023K\"}", "label zns.memory: \"1023K\" is not known" },
		{ "{\"zns.memory\":\"0%\"}", "is not known" },
		{ "{\"zns.memory-predict\":\"yes\"}", "is not known: on or off" },
		{ "{\"zns.memory\":\"00001%\"}", "is not known" },
		{ "{\"zns.memory\":\"%\"}", "is not known" },
		{ "{\"zns.memory\":\"30%,512M\"}", "is not known" },
		{ "{\"zns.memory\":\"auto,512M\"}", "is not known" },
		{ "{\"zns.memory\":\"auto,auto\"}", "is not known" },
		{ "{\"zns.network-lock\":\"none\"}", "is not known: nftables, iptables or skip" },
		{ "{\"zns.memory-min\":\"1023K\"}", "label zns.memory-min: \"1023K\" is no size" },
		{ "{\"zns.memory-min\":\"30%\"}", "is no size of 1M at least" },
		{ "{\"zns.memory\":\"hibernate:1m,hibernate:2m\"}", "is not known" },
		{ "{\"zns.memory\":\"hibernate:2000w\"}", "is not known" },
		{ "{\"zns.memory\":\"512M,no\"}", "is not known" },
		{ "{\"zns.memory\":\"99999999999999999999\"}", "is not known" },
	};

	put(at("conf/docker.rules"), "");
	put(at("conf/zns.conf"), "");
	bundle("{}", "[]");
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		config(v[i].labels, "[]");
		assert_non_null(strstr(setting(DOCKER_QOS), v[i].says));
	}
	config("{\"zns.criu\":\"tcp-established,ext-unix-sk\"}", "[]");
	assert_string_equal(setting(DOCKER_CRIU), "tcp-established,ext-unix-sk/label");
}

static void bad_rules(void **state)
{
	static const struct {
		const char *text, *says;
	} v[] = {
		{ "qos=5\n", "docker.rules:1: name=PATTERN or image=PATTERN comes first" },
		{ "\n#x\nname=a speed=5\n", "docker.rules:3: \"speed\" is not known" },
		{ "name=a qos\n", "docker.rules:1: \"qos\" is not KEY=VALUE" },
		{ "name= qos=5\n", "docker.rules:1: name= wants a pattern" },
		{ "name=nobody qos=fast", "docker.rules:1: qos: \"fast\" is no bandwidth" },
		{ "name=nobody weight=99",
		  "docker.rules:1: weight: \"99\" is no weight: 100 to 10000" },
	};

	config("{}", "[]");
	bundle("{}", "[]");
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		put(at("conf/docker.rules"), v[i].text);
		assert_non_null(strstr(setting(DOCKER_QOS), v[i].says));
	}
	put(at("conf/docker.rules"), "");
}

static void handle(const char *dir, uint8_t n)
{
	ZnsPb__Handle h = ZNS_PB__HANDLE__INIT;
	uint8_t id[ZNS_UUID_LEN], dev[ZNS_UUID_LEN] = { 9 };
	struct zns_err err = ZNS_ERR_INIT;
	int fd;

	mkdirs(dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	memset(id, n, sizeof(id));
	h.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, dev };
	h.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	h.container = (char *)"web";
	assert_int_equal(zns_handle_write(fd, &h, &err), 0);
	close(fd);
}

static bool ended;

static enum docker_life life(const char *container, const char *name, uint8_t n)
{
	uint8_t id[ZNS_UUID_LEN];
	char why[300] = "";
	enum docker_life l;

	memset(id, n, sizeof(id));
	l = docker_checkpoint_life(&(struct docker_made){ at("root"), container, name, id,
							  .ended = ended,
							  .created_ns = 1000000000ll * 1700000000 },
				   why, sizeof(why));
	assert_true(*why);
	return l;
}

/* Docker failed after the dump: nothing but the catalogue has the container, until it is started
 * again. */
static void lost(void **state)
{
	static const struct {
		const char *state;
		enum docker_life life;
	} v[] = {
		/* 1700000000 is 22:13:20 */
		{ "{\"StartedAt\":\"2023-11-14T22:13:19.5Z\"}", DOCKER_NEEDED },
		{ "{\"StartedAt\":\"2023-11-14T22:13:20.9Z\"}", DOCKER_NEEDED },
		{ "{\"StartedAt\":\"2023-11-14T22:13:21.1Z\"}", DOCKER_GONE },
		{ "{\"Running\":true,\"StartedAt\":\"2023-11-14T20:00:00Z\"}",
		  DOCKER_NEEDED }, /* its disk was full, so the file is incomplete */
		{ "{\"StartedAt\":\"0001-01-01T00:00:00Z\"}", DOCKER_NEEDED },
		{ "{\"StartedAt\":\"soon\"}", DOCKER_NEEDED },
		{ "{}", DOCKER_NEEDED },
		{ "3", DOCKER_NEEDED },
	};
	char text[300];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		snprintf(text, sizeof(text), "{\"ID\":\"" ID_A "\",\"State\":%s}", v[i].state);
		put(at("root/containers/" ID_A "/config.v2.json"), text);
		ended = true;
		assert_int_equal(life(ID_A, "lost", 7), v[i].life);
		ended = false;
		assert_int_equal(life(ID_A, "lost", 7), DOCKER_GONE);
	}
	ended = true;
	assert_int_equal(life("cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
			      "one", 7),
			 DOCKER_GONE);
	ended = false;
	config("{}", "[]");
}

static void needed(void **state)
{
	uint8_t id[ZNS_UUID_LEN] = { 0 };

	handle(at("root/containers/" ID_A "/checkpoints/one"), 1);
	handle(at("root/containers/" ID_B "/checkpoints/copy"), 2);
	assert_int_equal(life(ID_A, "one", 1), DOCKER_NEEDED);
	assert_int_equal(life(ID_A, "other", 2), DOCKER_NEEDED); /* a clone has it */
	assert_int_equal(life(ID_A, "rmed", 3), DOCKER_GONE);
	assert_int_equal(life("cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
			      "one", 3),
			 DOCKER_GONE);
	/* in doubt: it never was below the root, no root, no container */
	assert_int_equal(life(ID_A, NULL, 3), DOCKER_UNKNOWN);
	assert_int_equal(life("short", "one", 3), DOCKER_UNKNOWN);
	assert_int_equal(docker_checkpoint_life(&(struct docker_made){ at("away"), ID_A, "one", id,
								       .ended = true },
						NULL, 0),
			 DOCKER_UNKNOWN);
	assert_int_equal(docker_checkpoint_life(&(struct docker_made){ .container_id = ID_A,
								       .checkpoint_name = "one",
								       .id = id },
						NULL, 0),
			 DOCKER_UNKNOWN);
	/* a damaged handle may be the one that is looked for */
	mkdirs(at("root/containers/" ID_B "/checkpoints/bad"));
	put(at("root/containers/" ID_B "/checkpoints/bad/" ZNS_HANDLE_NAME), "garbage");
	assert_int_equal(life(ID_A, "rmed", 3), DOCKER_UNKNOWN);
	assert_int_equal(life(ID_A, "one", 1), DOCKER_NEEDED);
	/* a link is not followed */
	assert_int_equal(symlink("bad", at("root/containers/" ID_B "/checkpoints/link")), 0);
	assert_int_equal(docker_remove_dir(at("root/containers/" ID_B "/checkpoints/link")),
			 -ENOTDIR);
	assert_int_equal(unlink(at("root/containers/" ID_B "/checkpoints/link")), 0);
	assert_int_equal(life(ID_A, "rmed", 3), DOCKER_UNKNOWN);
	assert_int_equal(docker_remove_dir(at("root/containers/" ID_B "/checkpoints/bad")), 0);
	assert_int_equal(life(ID_A, "rmed", 3), DOCKER_GONE);
}

static enum docker_life podman(const char *root, const char *container, uint8_t n)
{
	uint8_t id[ZNS_UUID_LEN];
	char why[300] = "";
	enum docker_life l;

	memset(id, n, sizeof(id));
	l = podman_checkpoint_life(root, container, id, why, sizeof(why));
	assert_true(*why);
	return l;
}

#define STORE "store/overlay-containers"

static void podman_needed(void **state)
{
	mkdirs(at(STORE "/" ID_A "/userdata/shm"));
	handle(at(STORE "/" ID_A "/userdata/checkpoint"), 1);
	handle(at(STORE "/" ID_B "/userdata/by-hand"), 2);
	/* not Podman's as it is: an empty mount point, say */
	assert_int_equal(podman(at(STORE), ID_A, 3), DOCKER_UNKNOWN);
	put(at(STORE "/containers.lock"), "");
	assert_int_equal(podman(at(STORE), ID_A, 1), DOCKER_NEEDED);
	assert_int_equal(podman(at(STORE), ID_A, 2), DOCKER_NEEDED);
	assert_int_equal(podman(at(STORE), ID_A, 3), DOCKER_GONE);
	assert_int_equal(podman(at(STORE),
				"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
				3),
			 DOCKER_GONE);
	/* files that others can write are ignored */
	put(at(STORE "/" ID_A "/userdata/shm/" ZNS_HANDLE_NAME), "garbage");
	assert_int_equal(chmod(at(STORE "/" ID_A "/userdata/shm"), 01777), 0);
	assert_int_equal(podman(at(STORE), ID_A, 3), DOCKER_GONE);
	/* exported perhaps, no container, no store */
	assert_int_equal(podman(NULL, ID_A, 3), DOCKER_UNKNOWN);
	assert_int_equal(podman("", ID_A, 3), DOCKER_UNKNOWN);
	assert_int_equal(podman(at(STORE), "short", 3), DOCKER_UNKNOWN);
	assert_int_equal(podman(at("away"), ID_A, 3), DOCKER_UNKNOWN);
	put(at(STORE "/" ID_B "/userdata/by-hand/" ZNS_HANDLE_NAME), "garbage");
	assert_int_equal(podman(at(STORE), ID_A, 3), DOCKER_UNKNOWN);
	assert_int_equal(podman(at(STORE), ID_A, 1), DOCKER_NEEDED);
}

static void podman_words(void **state)
{
	static const struct {
		const char *words;
		size_t len;
		enum podman_call call;
	} v[] = {
#define WORDS(s, c) { s, sizeof(s), c }
		WORDS("podman\0container\0checkpoint\0web", PODMAN_KEPT),
		WORDS("podman\0-e\0container\0checkpoint\0--keep\0-lR", PODMAN_KEPT),
		WORDS("podman\0container\0checkpoint\0--export\0f\0web", PODMAN_EXPORTED),
		WORDS("podman\0container\0checkpoint\0--export=f\0web", PODMAN_EXPORTED),
		WORDS("podman\0container\0checkpoint\0web\0-ef", PODMAN_EXPORTED),
		WORDS("podman\0container\0checkpoint\0-kRe\0f\0web", PODMAN_EXPORTED),
		WORDS("podman\0container\0checkpoint\0--create-image\0i\0web", PODMAN_EXPORTED),
		WORDS("podman\0container\0checkpoint\0-cnone\0--\0web", PODMAN_KEPT),
		WORDS("podman\0system\0service", PODMAN_OTHER),
		WORDS("", PODMAN_OTHER),
	};
	static const struct {
		const char *bundle, *image;
		int ret;
	} b[] = {
		{ "/s/overlay-containers/" ID_A "/userdata",
		  "/s/overlay-containers/" ID_A "/userdata/checkpoint", 0 },
		{ "/s/overlay-containers/" ID_A "/userdata", "/s/elsewhere", -ENOENT },
		{ "/s/overlay-containers/" ID_A "/userdata",
		  "/s/overlay-containers/" ID_A "/userdata/a/b", -ENOENT },
		{ "/s/overlay-containers/" ID_A "/userdata", NULL, -ENOENT },
		{ "/s/vfs-containers/" ID_B "/userdata",
		  "/s/vfs-containers/" ID_B "/userdata/checkpoint", -ENOENT },
		{ "/bundles/" ID_A "/userdata", "/bundles/" ID_A "/userdata/checkpoint", -ENOENT },
		{ "/" ID_A "/userdata", "/" ID_A "/userdata/checkpoint", -ENOENT },
	};
	char out[100];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++)
		assert_int_equal(podman_call_of(v[i].words, v[i].len), v[i].call);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(b); i++)
		assert_int_equal(podman_root(b[i].bundle, ID_A, b[i].image, out, sizeof(out)),
				 b[i].ret);
	assert_int_equal(podman_root(b[0].bundle, ID_A, b[0].image, out, sizeof(out)), 0);
	assert_string_equal(out, "/s/overlay-containers");
	assert_int_equal(podman_root(b[0].bundle, ID_A, b[0].image, out, 10), -ENOENT);
}

static void pending(void **state)
{
	struct docker_container c = { 0 };
	char name[64];

	snprintf(c.root, sizeof(c.root), "%s/root", top);
	strcpy(c.id, ID_A);
	docker_pending_checkpoint(&c, name, sizeof(name));
	assert_string_equal(name, "");
	mkdirs(at("root/containers/" ID_A "/checkpoints/being-made"));
	docker_pending_checkpoint(&c, name, sizeof(name));
	assert_string_equal(name, "being-made");
}

static void api_host(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_api a;

	assert_int_equal(docker_api_init(&a, "unix:///x/d.sock", &err), 0);
	assert_string_equal(a.socket, "/x/d.sock");
	assert_int_equal(docker_api_init(&a, "tcp://h:1", &err), -EINVAL);
	assert_int_equal(docker_api_init(&a, "unix://rel", &err), -EINVAL);
	assert_int_equal(docker_api_init(&a, at("none"), &err), -EINVAL);
	snprintf(a.socket, sizeof(a.socket), "%s/none.sock", top);
	assert_true(docker_api_call(&a, "GET", "/info", NULL, NULL, &err) < 0);
	assert_non_null(strstr(err.msg, "no Docker daemon at"));
}

/* Names out of the environment and the command line stay what they are: one word each. */
static void unit_of_a_schedule(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char *text = NULL;

	(void)state;
	setenv("ZNS_RUN", "/run/a b\"\\%h", 1);
	assert_int_equal(
		docker_unit_service("web", "/usr/bin/z $HOME", "unix:///x y%n", 2, &text, &err), 0);
	assert_non_null(strstr(text, " \"ZNS_RUN=/run/a b\\\"\\\\%%h\"\n"));
	assert_non_null(strstr(text, "ExecStart=\"/usr/bin/z $$HOME\" checkpoint --keep 2 "
				     "--host \"unix:///x y%%n\" \"web\"\n"));
	free(text);
	setenv("ZNS_RUN", "/run/a\nExecStartPre=/bin/sh", 1);
	assert_int_equal(docker_unit_service("web", "/usr/bin/z", NULL, 2, &text, &err), -EINVAL);
	unsetenv("ZNS_RUN");
}

/* The reason is the first error of ours, or else criu's first one. */
static void reason_in_the_log(void **state)
{
	static const struct {
		const char *log, *reason;
	} t[] = {
		{ "", NULL },
		{ "(00.01) Warn  (a.c:1): b\n", NULL },
		{ "(00.01) Error (a.c:1): b", "criu: b" },
		{ "(00.01) Error (a.c:1): b\n(00.02) Error (a.c:1): c\n", "criu: b" },
		{ "(00.01) Error (a.c:1): b\n(00.02) Error (z.c:1): zns: d\nx", "zns: d" },
	};
	const struct call c = { .image_path = top };
	const struct timespec begin = { 0 }, later = { .tv_sec = INT64_MAX };
	char out[256];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		put(at("dump.log"), t[i].log);
		assert_int_equal(report_find(&c, "dump.log", &begin, out, sizeof(out)),
				 t[i].reason ? 0 : -ENOENT);
		if (t[i].reason)
			assert_string_equal(out, t[i].reason);
		assert_int_equal(report_find(&c, "dump.log", &later, out, sizeof(out)), -ENOENT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reason_in_the_log),
		cmocka_unit_test(container),
		cmocka_unit_test(bad_json),
		cmocka_unit_test(order),
		cmocka_unit_test(bad_values),
		cmocka_unit_test(bad_rules),
		cmocka_unit_test(needed),
		cmocka_unit_test(lost),
		cmocka_unit_test(pending),
		cmocka_unit_test(api_host),
		cmocka_unit_test(podman_needed),
		cmocka_unit_test(podman_words),
		cmocka_unit_test(memory),
		cmocka_unit_test(image_by_id),
		cmocka_unit_test(rules_of_names),
		cmocka_unit_test(example_rules),
		cmocka_unit_test(unit_of_a_schedule),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
