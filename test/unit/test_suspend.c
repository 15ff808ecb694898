/* SPDX-License-Identifier: GPL-2.0-only */
/* docker suspend and resume, with a dockerd that the test plays: the restart policy is the
 * container's own again whatever fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../zns/docker/cmd/docker_suspend.c"

#define ID "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ALWAYS "{\"Name\":\"always\",\"MaximumRetryCount\":0}"

/* ---- dockerd ---- */

static char top[64], policy_file[256], resume_file[256];
static char calls[600]; /* what was called, in order */
static int fails_at; /* which call fails; 0: none */
static int nr_calls;
static bool noted; /* the policy was in its file while the checkpoint was made */
static struct docker_daemon daemon_of_test;
static struct docker_target target;
static const char *inspected; /* what dockerd says of the container */

static int called(const char *what, const char *more, struct zns_err *err)
{
	size_t n = strlen(calls);

	snprintf(calls + n, sizeof(calls) - n, "%s%s%s;", what, *more ? " " : "", more);
	return ++nr_calls == fails_at ? zns_fail(err, -EIO, "the test says so") : 0;
}

int __wrap_docker_api_call(const struct docker_api *a, const char *method, const char *path,
			   struct json_object *body, struct json_object **out, struct zns_err *err);
int __wrap_docker_api_call(const struct docker_api *a, const char *method, const char *path,
			   struct json_object *body, struct json_object **out, struct zns_err *err)
{
	const char *last = strrchr(path, '/');

	assert_string_equal(method, "POST");
	assert_non_null(strstr(path, "/containers/" ID "/"));
	return called(last + 1,
		      body ? json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN) : "",
		      err);
}

int docker_make_checkpoint(const struct docker_daemon *d, const struct docker_target *t,
			   const struct docker_ask *ask, struct zns_err *err)
{
	noted = !access(policy_file, F_OK);
	assert_true(ask->exit);
	return called("checkpoint", ask->name, err);
}

int docker_thin_out(const struct docker_daemon *d, const struct docker_container *c,
		    const char *prefix, const char *spare, unsigned keep, struct zns_err *err)
{
	assert_string_equal(prefix, DOCKER_STOP_PREFIX);
	assert_int_equal(keep, 0);
	return called("thin out but", spare, err);
}

static void begin(const char *json, bool running)
{
	target = (struct docker_target){ .running = running, .runtime = "zns" };
	strcpy(target.c.kind, "docker");
	snprintf(target.c.root, sizeof(target.c.root), "%s", top);
	snprintf(target.c.id, sizeof(target.c.id), "%s", ID);
	snprintf(target.c.name, sizeof(target.c.name), "web");
	target.json = json_tokener_parse(json);
	*calls = '\0';
	nr_calls = fails_at = 0;
	noted = false;
	inspected = json;
}

static void end(void)
{
	json_object_put(target.json);
}

int docker_target_open(const struct docker_daemon *d, const char *name, struct docker_target *t,
		       struct zns_err *err)
{
	*t = (struct docker_target){ .c = target.c, .json = json_tokener_parse(inspected) };
	return 0;
}

void docker_target_close(struct docker_target *t)
{
	json_object_put(t->json);
}

bool docker_daemon_is_ours(const struct docker_daemon *d, const char *runtime)
{
	return runtime && !strcmp(runtime, "zns");
}

/* ---- commands that these tests do not call ---- */

int docker_daemon_open(struct docker_daemon *d, const char *host, struct zns_err *err)
{
	return -ENOSYS;
}

void docker_daemon_close(struct docker_daemon *d)
{
}

void docker_close(struct docker_daemon *d, struct docker_target *t)
{
}

int docker_suspend_all(struct docker_daemon *d, bool json, bool limited, uint64_t within_s,
		       struct zns_err *err)
{
	return -ENOSYS;
}

void docker_time_name(const char *prefix, char *out, size_t len)
{
}

/* ---- suspend ---- */

#define WITH(policy) "{\"HostConfig\":{\"RestartPolicy\":" policy "}}"
#define NO "update {\"RestartPolicy\":{\"Name\":\"no\"}};"
#define BACK "update {\"RestartPolicy\":" ALWAYS "};"

static int suspend(int at, struct zns_err *err)
{
	*err = (struct zns_err)ZNS_ERR_INIT;
	fails_at = at;
	return docker_suspend_one(&daemon_of_test, &target, "one", NULL, err);
}

static void with_a_policy(void **state)
{
	struct zns_err err;

	begin(WITH(ALWAYS), true);
	assert_int_equal(suspend(0, &err), 0);
	assert_string_equal(calls, NO "checkpoint one;" BACK "thin out but one;");
	assert_true(noted);
	assert_int_equal(access(policy_file, F_OK), -1);
	end();
}

static void without_a_policy(void **state)
{
	static const char *const json[] = { WITH("{\"Name\":\"no\"}"), WITH("{\"Name\":\"\"}"),
					    "{}" };
	struct zns_err err;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(json); i++) {
		begin(json[i], true);
		assert_int_equal(suspend(0, &err), 0);
		assert_string_equal(calls, "checkpoint one;thin out but one;");
		assert_false(noted);
		end();
	}
}

static void each_call_fails(void **state)
{
	struct zns_err err;

	begin(WITH(ALWAYS), true);
	assert_int_equal(suspend(1, &err), -EIO); /* the policy is still there */
	assert_string_equal(calls, NO);
	end();
	begin(WITH(ALWAYS), true);
	assert_int_equal(suspend(2, &err), -EIO);
	assert_string_equal(err.msg, "the test says so");
	assert_string_equal(calls, NO "checkpoint one;" BACK);
	assert_int_equal(access(policy_file, F_OK), -1);
	end();
	begin(WITH(ALWAYS), true);
	assert_int_equal(suspend(3, &err), -EIO);
	assert_string_equal(
		err.msg,
		"it is suspended, but its restart policy always is not set again: the test says so");
	assert_int_equal(access(policy_file, F_OK), 0); /* for the next command */
	unlink(policy_file);
	end();
}

static void by_two_at_once(void **state)
{
	int fd = open(policy_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct zns_err err;

	begin(WITH(ALWAYS), true);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(suspend(0, &err), -EBUSY);
	assert_string_equal(err.msg, "container web is being suspended by another command");
	assert_string_equal(calls, "");
	end();
	begin("{}", true);
	assert_int_equal(suspend(0, &err), -EBUSY);
	assert_string_equal(calls, "");
	close(fd);
	unlink(policy_file);
	end();
}

/* The next command sets the policy that a killed suspend has removed, once. */
static void after_a_kill(void **state)
{
	static const struct {
		const char *json, *text, *calls;
	} of[] = {
		{ WITH("{\"Name\":\"no\"}"), ALWAYS, BACK },
		{ WITH("{\"Name\":\"always\"}"), ALWAYS, "" }, /* it was not removed yet */
		{ WITH("{\"Name\":\"no\"}"), "{\"Na", "" },
	};

	snprintf(daemon_of_test.root, sizeof(daemon_of_test.root), "%s", top);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(of); i++) {
		begin(of[i].json, false);
		assert_int_equal(zns_replace_file(AT_FDCWD, policy_file, of[i].text,
						  strlen(of[i].text), 0600),
				 0);
		docker_policies_back(&daemon_of_test);
		docker_policies_back(&daemon_of_test);
		assert_string_equal(calls, of[i].calls);
		assert_int_equal(access(policy_file, F_OK), -1);
		end();
	}
}

/* ---- resume ---- */

static void resumed(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char name[256];

	begin("{}", true);
	assert_int_equal(resume(&daemon_of_test, &target, "one", name, sizeof(name), &err), -EBUSY);
	assert_string_equal(err.msg, "container web runs");
	target.running = false;
	target.runtime = "runc";
	assert_int_equal(resume(&daemon_of_test, &target, "one", name, sizeof(name), &err),
			 -EINVAL);
	assert_non_null(strstr(err.msg, "container web has runtime runc, which cannot resume"));
	target.runtime = NULL;
	assert_int_equal(resume(&daemon_of_test, &target, "one", name, sizeof(name), &err),
			 -EINVAL);
	assert_non_null(strstr(err.msg, "has runtime (unknown)"));
	target.runtime = "zns";
	assert_int_equal(resume(&daemon_of_test, &target, "../one", name, sizeof(name), &err),
			 -EINVAL);
	assert_string_equal(calls, "");
	assert_int_equal(access(resume_file, F_OK), -1);
	assert_int_equal(resume(&daemon_of_test, &target, "one", name, sizeof(name), &err), 0);
	assert_string_equal(name, "one");
	assert_string_equal(calls, "start;");
	assert_int_equal(access(resume_file, F_OK), 0); /* zns-runc takes it */
	fails_at = 2;
	assert_int_equal(resume(&daemon_of_test, &target, "one", name, sizeof(name), &err), -EIO);
	assert_int_equal(access(resume_file, F_OK), -1);
	end();
}

static int setup(void **state)
{
	char path[200];

	strcpy(top, "/tmp/zns-test-suspend-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	snprintf(path, sizeof(path), "%s/containers", top);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/containers/" ID, top);
	mkdir(path, 0700);
	snprintf(policy_file, sizeof(policy_file), "%s/" POLICY_FILE, path);
	snprintf(resume_file, sizeof(resume_file), "%s/" DOCKER_RESUME_FILE, path);
	return 0;
}

static int teardown(void **state)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_a_policy),   cmocka_unit_test(without_a_policy),
		cmocka_unit_test(each_call_fails), cmocka_unit_test(by_two_at_once),
		cmocka_unit_test(after_a_kill),    cmocka_unit_test(resumed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
