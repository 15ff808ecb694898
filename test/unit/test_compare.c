/* SPDX-License-Identifier: GPL-2.0-only */
/* A checkpoint is restored only into a container of its own rights and shape: each difference is
 * refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "../../zns/docker/docker.h"

static const char dumped[] =
	"{\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0,\"additionalGids\":[4,24]},"
	"\"capabilities\":{\"bounding\":[\"CAP_CHOWN\",\"CAP_KILL\"],\"effective\":[\"CAP_KILL\"],"
	"\"inheritable\":[],\"permitted\":[\"CAP_KILL\"]},"
	"\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"hard\":9,\"soft\":9},"
	"{\"type\":\"RLIMIT_CORE\",\"hard\":0,\"soft\":0}],\"noNewPrivileges\":true,"
	"\"apparmorProfile\":\"docker-default\"},"
	"\"root\":{\"path\":\"/x/merged\",\"readonly\":true},\"hostname\":\"one\","
	"\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\","
	"\"options\":[\"nosuid\"]},{\"destination\":\"/data\",\"type\":\"bind\","
	"\"source\":\"/one\",\"options\":[\"rbind\",\"ro\"]}],"
	"\"linux\":{\"sysctl\":{\"net.core.somaxconn\":\"9\"},\"cgroupsPath\":\"/docker/one\","
	"\"resources\":{\"memory\":{\"limit\":1},\"devices\":[{\"allow\":false,\"access\":\"rwm\"}]},"
	"\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":[{\"names\":[\"read\"]}]},"
	"\"namespaces\":[{\"type\":\"mount\"},{\"type\":\"pid\"},"
	"{\"type\":\"network\",\"path\":\"/proc/7/ns/net\"}],"
	"\"maskedPaths\":[\"/proc/kcore\"],\"readonlyPaths\":[\"/proc/sys\"]}}";

/* Replaces @old by @new in the config.json of the dump. @line: the difference that the refusal
 * names; NULL: it is allowed. */
static const struct {
	const char *old, *new, *line;
} cases[] = {
	{ "\"uid\":0", "\"uid\":1000", "in its user" },
	{ "\"gid\":0", "\"gid\":1000", "in its group" },
	{ "[4,24]", "[4]", "in its additional groups" },
	{ "\"gid\":0", "\"gid\":0,\"umask\":63", "in its umask" },
	{ "\"CAP_CHOWN\",\"CAP_KILL\"", "\"CAP_KILL\"", "in its bounding capabilities" },
	{ "\"effective\":[\"CAP_KILL\"]", "\"effective\":[]", "in its effective capabilities" },
	{ "\"inheritable\":[]", "\"inheritable\":[\"CAP_KILL\"]",
	  "in its inheritable capabilities" },
	{ "\"permitted\":[\"CAP_KILL\"]", "\"permitted\":[]", "in its permitted capabilities" },
	{ "\"inheritable\":[]", "\"ambient\":[\"CAP_KILL\"]", "in its ambient capabilities" },
	{ ",\"noNewPrivileges\":true", "", "in its no_new_privs" },
	{ "[\"read\"]", "[\"read\",\"write\"]", "in its seccomp filter" },
	{ "\"seccomp\"", "\"none\"", "in its seccomp filter" },
	{ "docker-default", "unconfined", "in its AppArmor profile" },
	{ "\"terminal\":false", "\"selinuxLabel\":\"x\"", "in its SELinux label" },
	{ "\"maskedPaths\"", "\"mountLabel\":\"x\",\"maskedPaths\"",
	  "in its SELinux label of mounts" },
	{ "\"terminal\":false", "\"terminal\":true", "in its terminal" },
	{ "\"hard\":9", "\"hard\":10", "in its resource limits" },
	{ "\"terminal\":false", "\"oomScoreAdj\":-500", "in its OOM score" },
	{ ",\"readonly\":true", "", "in its read-only root" },
	{ "[\"/proc/kcore\"]", "[]", "in its masked paths" },
	{ "[\"/proc/sys\"]", "[]", "in its read-only paths" },
	{ "\"9\"", "\"10\"", "in its sysctls" },
	{ "\"allow\":false", "\"allow\":true", "in its access to devices" },
	{ "\"maskedPaths\"", "\"devices\":[{\"path\":\"/dev/fuse\"}],\"maskedPaths\"",
	  "in its devices" },
	{ "\"maskedPaths\"", "\"uidMappings\":[{\"hostID\":1}],\"maskedPaths\"",
	  "in its user ids of its user namespace" },
	{ "{\"type\":\"pid\"},", "", "in its namespace pid" },
	{ "{\"type\":\"pid\"}", "{\"type\":\"pid\",\"path\":\"/proc/1/ns/pid\"}",
	  "in its namespace pid" },
	{ "{\"type\":\"pid\"}", "{\"type\":\"pid\"},{\"type\":\"ipc\"}", "in its namespace ipc" },
	{ ",\"path\":\"/proc/7/ns/net\"", "", "in its namespace network" },
	{ "\"destination\":\"/data\"", "\"destination\":\"/other\"", "in its mount /data" },
	{ "\"destination\":\"/data\"", "\"destination\":\"/a\\u001bb\"", "in its mount /data" },
	{ "\"mounts\":[", "\"mounts\":[{\"destination\":\"/more\",\"type\":\"bind\"},",
	  "in its mount /more" },
	{ "[\"rbind\",\"ro\"]", "[\"rbind\",\"rw\"]", "in its mount /data" },
	{ "\"type\":\"bind\"", "\"type\":\"tmpfs\"", "in its mount /data" },
	/* differences that are allowed */
	{ "\"hostname\":\"one\"", "\"hostname\":\"two\"", NULL },
	{ "\"limit\":1", "\"limit\":2", NULL },
	{ "/docker/one", "/docker/two", NULL },
	{ "\"source\":\"/one\"", "\"source\":\"/two\"", NULL },
	{ "/x/merged", "/y/merged", NULL },
	{ "/proc/7/ns/net", "/proc/8/ns/net", NULL },
	{ "\"terminal\":false,", "", NULL },
	{ "\"inheritable\":[],", "", NULL },
	{ "\"CAP_CHOWN\",\"CAP_KILL\"", "\"CAP_KILL\",\"CAP_CHOWN\"", NULL },
};

static struct json_object *parse(const char *text)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct json_object *o = NULL;

	if (zns_json_parse("test", (const uint8_t *)text, strlen(text), &o, &err))
		fail_msg("%s", err.msg);
	return o;
}

static struct json_object *changed(const char *old, const char *new)
{
	char text[4096];
	const char *found = strstr(dumped, old);

	if (!found)
		fail_msg("no %s", old);
	snprintf(text, sizeof(text), "%.*s%s%s", (int)(found - dumped), dumped, new,
		 found + strlen(old));
	return parse(text);
}

static void each_difference(void **state)
{
	struct json_object *was = parse(dumped);

	assert_int_equal(docker_compare(was, was, false, NULL), 0);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(cases); i++) {
		struct json_object *now = changed(cases[i].old, cases[i].new);
		struct zns_err err = ZNS_ERR_INIT, back = ZNS_ERR_INIT;
		int ret = docker_compare(was, now, false, &err),
		    turned = docker_compare(now, was, false, &back);

		if (ret != (cases[i].line ? -EPERM : 0) || turned != ret ||
		    (ret && !strstr(err.msg, cases[i].line)))
			fail_msg("%s -> %s: %d and %d: %s", cases[i].old, cases[i].new, ret, turned,
				 err.msg);
		json_object_put(now);
	}
	json_object_put(was);
}

/* Members of wrong types, and empty ones: no crash, and they never count as equal. */
static void strange(void **state)
{
	static const char *const texts[] = {
		"[]",
		"{}",
		"7",
		"{\"process\":[],\"linux\":3,\"mounts\":{}}",
		"{\"mounts\":[1,{},{\"destination\":5}],\"linux\":{\"namespaces\":[{},2]}}",
	};
	struct json_object *was = parse(dumped);

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(texts); i++) {
		struct json_object *now = parse(texts[i]);

		assert_int_equal(docker_compare(was, now, false, NULL), -EPERM);
		assert_int_equal(docker_compare(now, was, false, NULL), -EPERM);
		json_object_put(now);
	}
	json_object_put(was);
}

static struct json_object *joined(const char *path, bool mark)
{
	struct json_object *o = changed("/proc/7/ns/net", path);

	if (mark)
		docker_mark_namespaces(o);
	return o;
}

/* An engine also gives the host's namespace by a path. One that is not its type is no host's. */
static void namespaces_of_the_host(void **state)
{
	static const struct {
		const char *was, *now;
		bool mark, strict;
		int ret;
	} joins[] = {
		{ "/proc/self/ns/net", "/proc/thread-self/ns/net", true, true, 0 },
		{ "/proc/self/ns/uts", "/proc/self/ns/ipc", true, true, 0 },
		{ "/proc/self/ns/net", "/proc/self/ns/uts", true, false, -EPERM },
		{ "/proc/self/ns/uts", "/proc/self/ns/net", true, false, -EPERM },
		/* of an earlier version, or not known */
		{ "/proc/self/ns/net", "/proc/self/ns/net", false, true, -EPERM },
		{ "/proc/self/ns/net", "/proc/self/ns/net", false, false, 0 },
		{ "/proc/self/ns/uts", "/none", true, false, -EPERM },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(joins); i++) {
		struct json_object *was = joined(joins[i].was, joins[i].mark),
				   *now = joined(joins[i].now, true);
		struct zns_err err = ZNS_ERR_INIT;

		assert_int_equal(docker_compare(was, now, joins[i].strict, &err), joins[i].ret);
		if (joins[i].ret)
			assert_non_null(strstr(err.msg, "in its namespace network"));
		json_object_put(was);
		json_object_put(now);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_difference),
		cmocka_unit_test(strange),
		cmocka_unit_test(namespaces_of_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
