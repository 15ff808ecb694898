/* SPDX-License-Identifier: GPL-2.0-only */
/* Which checkpoint a container's start resumes from, and its error if it does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "../../zns/docker/docker.h"
#include "until.h"
#include "zns/handle.h"

#define ID "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define RAN "2020-01-01T00:00:00Z"
#define NEVER "0001-01-01T00:00:00Z"
#define RAN_NS 1577836800000000000ll

static char top[64], root[80];

static const char *at(const char *name)
{
	static char path[4][512];
	static int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", top, name);
	return path[n];
}

static void put(const char *path, const char *text)
{
	assert_int_equal(zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600), 0);
}

static void make(const char *path)
{
	char cmd[600];

	snprintf(cmd, sizeof(cmd), "mkdir -p %s", path);
	assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
	strcpy(top, "/tmp/zns-test-resume-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	setenv("ZNS_CONFIG", at("conf"), 1);
	setenv("ZNS_RUN", at("run"), 1);
	snprintf(root, sizeof(root), "%s/root", top);
	make(at("conf"));
	make(at("bundle"));
	make(at("files"));
	make(at("volume"));
	make(at("root/containers/" ID "/checkpoints"));
	return 0;
}

static int teardown(void **state)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	return system(cmd);
}

static void checkpoint(const char *name)
{
	char dir[300], path[320];

	snprintf(dir, sizeof(dir), "root/containers/" ID "/checkpoints/%s", name);
	make(at(dir));
	snprintf(path, sizeof(path), "%s/inventory.img", dir);
	put(at(path), "x");
	assert_int_equal(docker_shape_write(at(dir), at("bundle"), false), 0);
}

static struct docker_container c;
static struct docker_settings s;

static void read_container(const char *labels, const char *started)
{
	const struct docker_runtime rt = { .docker_root = root };
	struct zns_err err = ZNS_ERR_INIT;
	char text[1000];

	snprintf(text, sizeof(text),
		 "{\"ID\":\"" ID "\",\"Name\":\"/web\",\"State\":{\"StartedAt\":\"%s\"},"
		 "\"Config\":{\"Labels\":{%s}}}",
		 started, labels);
	put(at("root/containers/" ID "/config.v2.json"), text);
	if (docker_container_read(&rt, at("bundle"), ID, &c, &err) ||
	    docker_settings_read(&c, &s, &err))
		fail_msg("%s", err.msg);
}

/* "NAME", "-" for a cold start, or "! line"; and "/cold" if that may be a cold start. */
static const char *chosen(const char *labels, const char *started)
{
	static char out[600];
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_resume r;
	int ret;

	read_container(labels, started);
	ret = docker_resume_choose(&c, &s, &r, &err);
	snprintf(out, sizeof(out), "%s%s%s",
		 ret    ? "! " :
		 *r.dir ? r.name :
			  "-",
		 ret ? err.msg : "", ret && r.or_cold ? "/cold" : "");
	docker_container_fini(&c);
	return out;
}

static const struct docker_frozen *now(void)
{
	static struct docker_frozen f;

	f.at_ns = f.dumped_ns = zns_now_ns();
	return &f;
}

static void ended(const char *name)
{
	read_container("", RAN);
	assert_int_equal(docker_resume_ended(&c, name, now()), 0);
	docker_container_fini(&c);
}

static void bundle(const char *uid)
{
	char text[1000];

	snprintf(text, sizeof(text),
		 "{\"process\":{\"user\":{\"uid\":%s},\"env\":[\"SECRET=1\"]},"
		 "\"root\":{\"path\":\"%s/files\"},\"mounts\":[{\"destination\":\"/data\","
		 "\"type\":\"bind\",\"source\":\"%s/volume\",\"options\":[\"rbind\"]},"
		 "{\"destination\":\"/etc/hosts\",\"type\":\"bind\","
		 "\"source\":\"%s/containers/" ID "/hosts\",\"options\":[\"rbind\"]},"
		 "{\"destination\":\"/etc/x\",\"type\":\"bind\",\"source\":\"%s/ro\","
		 "\"options\":[\"rbind\",\"ro\"]}]}",
		 uid, top, top, root, top);
	put(at("bundle/config.json"), text);
}

static void meaning(void **state)
{
	bundle("0");
	read_container("\"zns.suspend\":\"yes\"", RAN);
	assert_string_equal(s.value[DOCKER_STOP], "checkpoint");
	assert_string_equal(s.value[DOCKER_RESUME], "ended");
	docker_container_fini(&c);
	read_container("\"zns.suspend\":\"yes\",\"zns.resume\":\"no\"", RAN);
	assert_string_equal(s.value[DOCKER_STOP], "checkpoint");
	assert_string_equal(s.value[DOCKER_RESUME], "no");
	docker_container_fini(&c);
	put(at("conf/zns.conf"), "docker-suspend = yes\n");
	read_container("", RAN);
	assert_string_equal(s.source[DOCKER_STOP], "default");
	docker_container_fini(&c);
	put(at("conf/docker.rules"), "name=we* suspend=no\n");
	read_container("", RAN);
	assert_null(s.source[DOCKER_STOP]);
	docker_container_fini(&c);
	read_container("\"zns.suspend\":\"yes\"", RAN);
	assert_string_equal(s.source[DOCKER_STOP], "label");
	docker_container_fini(&c);
	unlink(at("conf/docker.rules"));
	unlink(at("conf/zns.conf"));
}

#define SUSPEND "\"zns.suspend\":\"yes\""

static void the_one_it_ended_with(void **state)
{
	assert_string_equal(chosen(SUSPEND, RAN), "-");
	checkpoint("one");
	checkpoint("two");
	assert_string_equal(chosen(SUSPEND, RAN), "-");
	put(at("root/containers/" ID "/hosts"), "x");
	ended("one");
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	assert_string_equal(chosen("", RAN), "-");
	/* asking uses nothing up, a start does */
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	assert_int_equal(docker_resume_used(root, ID), 0);
	assert_int_equal(docker_resume_used(root, ID), 0);
	assert_string_equal(chosen(SUSPEND, RAN), "-");
	/* a note that stays would serve twice */
	make(at("root/containers/" ID "/" DOCKER_ENDED_FILE));
	assert_int_equal(docker_resume_used(root, ID), -EISDIR);
	assert_int_equal(rmdir(at("root/containers/" ID "/" DOCKER_ENDED_FILE)), 0);
	ended("gone");
	assert_non_null(strstr(chosen(SUSPEND, RAN), "! checkpoint gone: "));
	assert_non_null(strstr(chosen(SUSPEND ",\"zns.resume-else\":\"fail\"", RAN), "! "));
	assert_null(strstr(chosen(SUSPEND ",\"zns.resume-else\":\"fail\"", RAN), "/cold"));
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), "../../x 1\n");
	assert_non_null(strstr(chosen(SUSPEND, RAN), "names no checkpoint/cold"));
	docker_resume_used(root, ID);
}

/* Started by another runtime, or by `docker start --checkpoint`: neither removes the note. */
static void started_since(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char name[256];

	ended("one");
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	assert_string_equal(chosen(SUSPEND, "2100-01-01T00:00:00Z"), "-");
	read_container("", "2100-01-01T00:00:00Z");
	assert_int_equal(docker_resume_ask(&c, NULL, name, sizeof(name), &err), -ENOENT);
	docker_container_fini(&c);
	docker_resume_used(root, ID);
}

static void files_since(void **state)
{
	static const char *const written[] = { "files/new", "volume/new" };
	char text[100];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(written); i++) {
		/* at a time before the file's: no clock is waited for */
		snprintf(text, sizeof(text), "one %lld\n", RAN_NS);
		put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
		put(at(written[i]), "x");
		assert_non_null(
			strstr(chosen(SUSPEND, RAN), "was written after its checkpoint/cold"));
		/* and one after it */
		snprintf(text, sizeof(text), "one %lld\n", (long long)zns_now_ns() + 1000000000000);
		put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
		assert_string_equal(chosen(SUSPEND, RAN), "one");
	}
	/* criu's own directories, and another one's */
	snprintf(text, sizeof(text), "one %lld %lld\n", RAN_NS,
		 (long long)zns_now_ns() + 1000000000000);
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
	unlink(at("files/new"));
	unlink(at("volume/new"));
	make(at("files/tmp"));
	assert_non_null(
		strstr(chosen(SUSPEND, RAN), "/volume was written after its checkpoint/cold"));
	put(at("files/tmp/new"), "x");
	assert_non_null(
		strstr(chosen(SUSPEND, RAN), "/files: new was written after its checkpoint/cold"));
	snprintf(text, sizeof(text), "one %lld\n", (long long)zns_now_ns() + 1000000000000);
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
	put(at("ro"), "x");
	put(at("root/containers/" ID "/hosts"), "y");
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	docker_resume_used(root, ID);
}

/* A disk that is slow is not waited for. */
static void files_in_time(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	const struct docker_frozen later = { INT64_MAX, INT64_MAX };

	put(at("volume/new"), "x");
	read_container("", RAN);
	assert_int_equal(docker_written_since(c.spec, "/none/x", &later, 0, &err), -ETIMEDOUT);
	assert_non_null(
		strstr(err.msg,
		       "checking whether the container's files were written takes more than 0 ms"));
	assert_int_equal(docker_written_since(c.spec, "/none/x", &later, 600000, &err), 0);
	docker_container_fini(&c);
}

static int64_t ctime_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec;
}

/* When the dump is committed the disk is full: what was reserved before is enough. */
static void full_disk(void **state)
{
	static char block[4096];
	char name[256];
	int fd;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		skip();
	make(at("full/containers/" ID));
	assert_int_equal(mount("tmpfs", at("full"), "tmpfs", 0, "size=64k,mode=700"), 0);
	make(at("full/containers/" ID));
	read_container("", RAN);
	snprintf(c.root, sizeof(c.root), "%s/full", top);
	assert_int_equal(docker_resume_reserve(&c, "one"), 0);
	fd = open(at("full/fill"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
	assert_int_equal(docker_resume_ended(&c, "one", now()), 0);
	assert_int_equal(docker_resume_ask(&c, NULL, name, sizeof(name), NULL), -ENOSPC);
	assert_string_equal(name, "one");
	/* without it, it is no success */
	assert_int_equal(docker_resume_ended(&c, "two", now()), -ENOSPC);
	assert_int_equal(docker_resume_reserve(&c, "two"), -ENOSPC);
	docker_container_fini(&c);
	assert_int_equal(umount(at("full")), 0);
}

/* Docker's volumes bring along what is mounted below them. */
static void files_below(void **state)
{
	static const char *const all[] = { "files", "volume", "volume/below", "volume/below/old" };
	int64_t ended_ns = 0;
	char text[100];
	int fd;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		skip();
	make(at("volume/below"));
	assert_int_equal(mount("tmpfs", at("volume/below"), "tmpfs", 0, NULL), 0);
	put(at("volume/below/old"), "x");
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(all); i++)
		ended_ns = zns_max(ended_ns, ctime_of(at(all[i])));
	snprintf(text, sizeof(text), "one %lld\n", (long long)ended_ns);
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	fd = open(at("volume/below/old"), O_WRONLY | O_CLOEXEC);
	do
		assert_int_equal(write(fd, "y", 1), 1);
	while (ctime_of(at("volume/below/old")) <= ended_ns);
	close(fd);
	assert_non_null(strstr(chosen(SUSPEND, RAN), "was written after its checkpoint/cold"));
	assert_int_equal(umount(at("volume/below")), 0);
	docker_resume_used(root, ID);
}

/* criu's links to deleted files are made when all is frozen; other names in their directory are
 * somebody else's. */
static void files_linked_again(void **state)
{
	char text[100];
	int64_t at_ns;

	make(at("volume/linked"));
	at_ns = ctime_of(at("volume"));
	do
		put(at("volume/linked/link_remap.7"), "x");
	while (ctime_of(at("volume/linked/link_remap.7")) <= at_ns);
	snprintf(text, sizeof(text), "one %lld %lld\n", (long long)at_ns,
		 (long long)zns_now_ns() + 1000000000000);
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), text);
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	put(at("volume/linked/new"), "x");
	assert_non_null(
		strstr(chosen(SUSPEND, RAN), "volume: new was written after its checkpoint/cold"));
	unlink(at("volume/linked/new"));
	put(at("volume/linked/link_remap.x"), "x");
	assert_non_null(strstr(chosen(SUSPEND, RAN), "link_remap.x was written after"));
	unlink(at("volume/linked/link_remap.x"));
	unlink(at("volume/linked/link_remap.7"));
	assert_non_null(strstr(chosen(SUSPEND, RAN), "volume: linked was written after"));
	docker_resume_used(root, ID);
}

static int server = -1; /* a server of files that answers nothing but the first message */

/* Replaces libc's function: a limit ends when somebody has asked the server. */
int poll(struct pollfd *p, nfds_t nr, int ms)
{
	struct pollfd asked = { .fd = server, .events = POLLIN };

	if (server >= 0)
		until(syscall(SYS_poll, &asked, 1, 0) == 1);
	return (int)syscall(SYS_poll, p, nr, server >= 0 ? 0 : ms);
}

static bool first_answer(void)
{
	struct {
		struct fuse_in_header head;
		char rest[FUSE_MIN_READ_BUFFER];
	} in;
	struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
	} out = { .head.len = sizeof(out), .init = { .major = 7, .minor = 31, .max_write = 4096 } };

	if (read(server, &in, sizeof(in)) < (ssize_t)sizeof(in.head))
		return false;
	out.head.unique = in.head.unique;
	return in.head.opcode == FUSE_INIT && write(server, &out, sizeof(out)) == sizeof(out);
}

/* Whoever asks the server waits for ever, but for the limit. */
static void files_of_no_server(void **state)
{
	const struct docker_frozen later = { INT64_MAX, INT64_MAX };
	struct zns_err err = ZNS_ERR_INIT;
	char options[100];
	bool begun;
	int ret;

	server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (server < 0 || unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		server = -1;
		skip();
	}
	make(at("volume/away"));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", server);
	assert_int_equal(mount("away", at("volume/away"), "fuse", 0, options), 0);
	begun = first_answer();
	read_container("", RAN);
	ret = docker_written_since(c.spec, "/none/x", &later, UNTIL_S * 1000, &err);
	docker_container_fini(&c);
	umount2(at("volume/away"), MNT_DETACH);
	close(server);
	server = -1;
	assert_true(begun);
	assert_int_equal(ret, -ETIMEDOUT);
	assert_non_null(strstr(err.msg, "/volume does not answer"));
}

/* No name of a container's can lead it elsewhere, or without end. */
static void files_of_all_shapes(void **state)
{
	char path[600];

	snprintf(path, sizeof(path), "one %lld\n", (long long)zns_now_ns() + 1000000000000);
	put(at("root/containers/" ID "/" DOCKER_ENDED_FILE), path);
	assert_int_equal(symlink("/nonexist", at("volume/dangling")), 0);
	assert_int_equal(symlink("..", at("volume/up")), 0);
	assert_int_equal(mkfifo(at("volume/fifo"), 0600), 0);
	assert_string_equal(chosen(SUSPEND, RAN), "one");
	snprintf(path, sizeof(path), "%s", "volume/d");
	for (size_t n = strlen(path); n + 2 < 440; n += 2)
		strcpy(path + n, "/d");
	make(at(path));
	assert_non_null(strstr(chosen(SUSPEND, RAN), "Too many levels of"));
	docker_resume_used(root, ID);
}

static void by_word(void **state)
{
	const struct timespec old[2] = { { 1, 0 }, { 1, 0 } };
	struct zns_err err = ZNS_ERR_INIT;
	char name[256];

	assert_int_equal(utimensat(AT_FDCWD,
				   at("root/containers/" ID "/checkpoints/two/inventory.img"), old,
				   0),
			 0);
	assert_string_equal(chosen("\"zns.resume\":\"latest\"", RAN), "one");
	assert_string_equal(chosen("\"zns.resume\":\"two\"", RAN), "two");
	assert_string_equal(chosen("\"zns.resume\":\"three\"", RAN),
			    "! checkpoint three: the container has no such checkpoint");
	assert_string_equal(chosen("\"zns.resume\":\"three\"", NEVER), "-");
	/* for one start, whatever the labels say */
	read_container("", RAN);
	assert_int_equal(docker_resume_ask(&c, "two", name, sizeof(name), &err), 0);
	docker_container_fini(&c);
	assert_string_equal(chosen("\"zns.resume\":\"one\",\"zns.resume-else\":\"cold\"", RAN),
			    "two");
	docker_resume_used(root, ID);
	read_container("", RAN);
	assert_int_equal(docker_resume_ask(&c, NULL, name, sizeof(name), &err), -ENOENT);
	assert_int_equal(docker_resume_ask(&c, "../x", name, sizeof(name), &err), -EINVAL);
	docker_container_fini(&c);
	ended("one");
	read_container("", RAN);
	assert_int_equal(docker_resume_ask(&c, NULL, name, sizeof(name), &err), 0);
	assert_string_equal(name, "one");
	docker_container_fini(&c);
	assert_non_null(strstr(chosen("", RAN), "one"));
	docker_resume_used(root, ID);
}

static void rights(void **state)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	assert_int_equal(zns_read_file(AT_FDCWD,
				       at("root/containers/" ID
					  "/checkpoints/one/" DOCKER_SHAPE_FILE),
				       10000, &text, &len),
			 0);
	assert_null(strstr((char *)text, "SECRET"));
	bundle("1000");
	assert_string_equal(
		chosen("\"zns.resume\":\"one\"", RAN),
		"! checkpoint one: the container differs from the one that was dumped in its user");
	unlink(at("root/containers/" ID "/checkpoints/one/" DOCKER_SHAPE_FILE));
	assert_non_null(strstr(chosen("\"zns.resume\":\"one\"", RAN),
			       "it does not say which rights it has"));
}

#define WARM "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define COPY "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static void owner(const char *id, const char *name, const char *what)
{
	static uint8_t uuid[ZNS_UUID_LEN] = { 1 };
	ZnsPb__Handle h = ZNS_PB__HANDLE__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	char path[400], text[1000];
	int fd;

	snprintf(path, sizeof(path), "root/containers/%s/checkpoints/one", id);
	make(at(path));
	h.device = h.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, uuid };
	h.container = (char *)"web";
	fd = open(at(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (zns_handle_write(fd, &h, &err))
		fail_msg("%s", err.msg);
	close(fd);
	snprintf(path, sizeof(path), "root/containers/%s/config.v2.json", id);
	snprintf(text, sizeof(text), "{\"ID\":\"%s\",\"Name\":\"/%s\",%s}", id, name, what);
	put(at(path), text);
}

/* "" if @now may use the checkpoint, else the error. */
static const char *from(const char *wish, const char *now)
{
	static char out[600];
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_resume r = { 0 };

	read_container(wish, NEVER);
	json_object_put(c.config);
	assert_int_equal(zns_json_parse("now", (const uint8_t *)now, strlen(now), &c.config, &err),
			 0);
	snprintf(out, sizeof(out), "%s", docker_from(&c, &s, &r, &err) ? err.msg : "");
	docker_container_fini(&c);
	return out;
}

#define WHAT(image, path, args) "\"Image\":\"" image "\",\"Path\":\"" path "\",\"Args\":[" args "]"

static void from_another(void **state)
{
	static const char *const wishes[] = {
		"\"zns.from\":\"warm/one\"", "\"zns.from\":\"01000000-0000-0000-0000-000000000000\""
	};

	put(at("conf/docker.rules"), "name=web from-allow=warm/*\n");
	owner(WARM, "warm", WHAT("sha256:1", "python3", "\"-c\",\"x\""));
	/* has the same checkpoint, and no rule allows it */
	owner(COPY, "copy", WHAT("sha256:2", "python3", "\"-c\",\"x\""));
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(wishes); i++) {
		assert_string_equal(
			from(wishes[i], "{" WHAT("sha256:1", "python3", "\"-c\",\"x\"") "}"), "");
		assert_non_null(
			strstr(from(wishes[i], "{" WHAT("sha256:2", "python3", "\"-c\",\"x\"") "}"),
			       "differs from warm in its image"));
		assert_non_null(
			strstr(from(wishes[i], "{" WHAT("sha256:1", "sh", "\"-c\",\"x\"") "}"),
			       "differs from warm in its program"));
		assert_non_null(
			strstr(from(wishes[i], "{" WHAT("sha256:1", "python3", "\"-c\"") "}"),
			       "differs from warm in its program's arguments"));
		assert_non_null(strstr(from(wishes[i], "{}"), "differs from warm in its image"));
	}
	put(at("conf/docker.rules"), "name=web from-allow=copy/*\n");
	assert_string_equal(from(wishes[1], "{" WHAT("sha256:2", "python3", "\"-c\",\"x\"") "}"),
			    "");
	assert_non_null(strstr(from(wishes[0], "{" WHAT("sha256:1", "python3", "\"-c\",\"x\"") "}"),
			       "there is no such checkpoint"));
	unlink(at("conf/docker.rules"));
}

/* A rule for pods hinders no first start of a container of Docker; its own label does. */
static void from_of_pods(void **state)
{
	put(at("conf/docker.rules"), "name=* from=shop/warm/app/latest\n");
	assert_string_equal(chosen("", NEVER), "-");
	read_container("", NEVER);
	assert_false(docker_resume_must(&c, &s));
	docker_container_fini(&c);
	put(at("conf/docker.rules"), "name=* from=warm/none\n");
	assert_non_null(strstr(chosen("", NEVER), "there is no such checkpoint"));
	read_container("", NEVER);
	assert_true(docker_resume_must(&c, &s));
	docker_container_fini(&c);
	unlink(at("conf/docker.rules"));
	assert_non_null(strstr(chosen("\"zns.from\":\"shop/warm/app/latest\"", NEVER),
			       "there is no such checkpoint"));
}

/* A star of a pattern fits no slash: what opens a container opens no namespace of that name. */
static void from_allow(void **state)
{
	static const struct {
		const char *patterns, *name;
		bool allowed;
	} all[] = {
		{ "warm/*", "warm/one", true },
		{ "*", "warm/one", false },
		{ "warm/*", "warm/pod/app/id", false },
		{ "warm/*/*/*", "warm/pod/app/id", true },
		{ "x,warm/pod/app/*", "warm/pod/app/id", true },
		{ "*/*", "warm/pod/app/id", false },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(all); i++) {
		struct docker_settings of = { .source[DOCKER_FROM_ALLOW] = "rule",
					      .source[DOCKER_FROM] = "label" };

		strcpy(of.value[DOCKER_FROM_ALLOW], all[i].patterns);
		if (docker_from_allowed(&of, all[i].name) != all[i].allowed)
			fail_msg("%s, %s", all[i].patterns, all[i].name);
	}
}

/* `docker cp` before the first start: files that another one's memory would be given. */
static void from_own_files(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	char options[600];

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		skip();
	read_container("", NEVER);
	assert_int_equal(docker_has_files(c.spec, &err), -EOPNOTSUPP);
	make(at("layers"));
	assert_int_equal(mount("none", at("layers"), "tmpfs", 0, NULL), 0);
	make(at("layers/low/lib"));
	make(at("layers/up/lib"));
	make(at("layers/work"));
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", at("layers/low"),
		 at("layers/up"), at("layers/work"));
	if (mount("overlay", at("files"), "overlay", 0, options))
		skip();
	assert_int_equal(docker_has_files(c.spec, &err), 0);
	assert_int_equal(symlink("x", at("files/lib/libc.so")), 0);
	assert_int_equal(docker_has_files(c.spec, &err), -EEXIST);
	assert_non_null(strstr(err.msg, "libc.so is not a file of the container's image"));
	docker_container_fini(&c);
	assert_int_equal(umount(at("files")), 0);
	assert_int_equal(umount(at("layers")), 0);
}

/* What a kubelet mounts into each container is no volume; what its user mounts is one, unless it
 * may only be read. */
static void from_volumes_of_a_pod(void **state)
{
	static const struct {
		const char *to, *option;
		int ret;
	} mounts[] = { { "/etc/hosts", "rw", 0 },     { "/dev/termination-log", "rw", 0 },
		       { "/dev/shm", "rw", 0 },       { "/data", "ro", 0 },
		       { "/data", "rw", -EEXIST },    { "/etc/hosts/", "rw", -EEXIST },
		       { "/etc/host", "rw", -EEXIST } };
	struct zns_err err = ZNS_ERR_INIT;
	struct json_object *spec;
	char text[300];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(mounts); i++) {
		snprintf(text, sizeof(text),
			 "{\"mounts\":[{\"destination\":\"%s\",\"type\":\"bind\","
			 "\"source\":\"/var/lib/x\",\"options\":[\"rbind\",\"%s\"]}]}",
			 mounts[i].to, mounts[i].option);
		assert_int_equal(zns_json_parse("spec", (uint8_t *)text, strlen(text), &spec, &err),
				 0);
		assert_int_equal(docker_has_volumes(spec, "", &err), mounts[i].ret);
		json_object_put(spec);
	}
}

/* Two short lives: the third start is cold, and the next one is not. */
static void lives(void **state)
{
	read_container("", RAN);
	assert_false(docker_resume_loops(&c, 1000));
	docker_resume_began(&c, 1000);
	assert_false(docker_resume_loops(&c, 1001));
	docker_resume_began(&c, 1009);
	assert_false(docker_resume_loops(&c, 1019)); /* a longer life */
	assert_false(docker_resume_loops(&c, 500)); /* after a boot */
	assert_true(docker_resume_loops(&c, 1018));
	assert_false(docker_resume_loops(&c, 1018));
	docker_resume_began(&c, 2000);
	docker_resume_began(&c, 2010);
	assert_false(docker_resume_loops(&c, 2011));
	/* two in a second */
	docker_resume_began(&c, 3000);
	docker_resume_began(&c, 3000);
	assert_true(docker_resume_loops(&c, 3000));
	docker_resume_began(&c, 2010);
	/* a life that ended with a checkpoint was no crash */
	docker_resume_began(&c, 2011);
	assert_int_equal(docker_resume_ended(&c, "one", now()), 0);
	assert_false(docker_resume_loops(&c, 2011));
	docker_resume_used(root, ID);
	docker_container_fini(&c);
}

static void other_engines(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_resume r;

	for (size_t i = 0; i < 3; i++) {
		read_container(i ? "\"zns.from\":\"warm/one\"" : SUSPEND, NEVER);
		strcpy(c.kind, "podman");
		if (i == 2)
			s.source[DOCKER_FROM] = "rule";
		assert_int_equal(docker_resume_choose(&c, &s, &r, &err), i == 1 ? -EOPNOTSUPP : 0);
		assert_false(r.or_cold && i == 1);
		assert_int_equal(docker_resume_in_vain(&c, &s), i == 0);
		docker_container_fini(&c);
	}
}

/* As Docker's: a resume that must not be replaced by a cold start fails the start. */
static void podman_must(void **state)
{
	read_container("\"zns.resume\":\"ended\",\"zns.resume-else\":\"fail\"", NEVER);
	strcpy(c.kind, "podman");
	strcpy(c.bundle, at("userdata"));
	make(c.bundle);
	assert_false(docker_resume_must(&c, &s)); /* in its first life */
	put(at("userdata/" DOCKER_NOTE_FILE), "x");
	assert_true(docker_resume_must(&c, &s));
	*c.bundle = 0;
	assert_false(docker_resume_must(&c, &s));
	docker_container_fini(&c);
}

static void note(void **state)
{
	cleanup_free uint8_t *text = NULL;
	size_t len;

	read_container("", RAN);
	docker_note(&c, 6, "not resumed: %s", "one\nlog file: \033x");
	assert_int_equal(docker_read_own(root, ID, DOCKER_NOTE_FILE, &text, &len, NULL), 0);
	assert_string_equal((char *)text, "not resumed: one log file:  x\n");
	docker_container_fini(&c);
}

/* A container that `docker suspend --all` leaves to the engine gets its stop signal, and only once. */
static void by_signal(void **state)
{
	read_container(SUSPEND ",\"zns.stop-order\":\"7\"", RAN);
	assert_string_equal(s.value[DOCKER_STOP_ORDER], "7");
	assert_false(docker_stops_by_signal(&c));
	assert_int_equal(docker_stop_by_signal(&c), 0);
	assert_true(docker_stops_by_signal(&c));
	assert_false(docker_stops_by_signal(&c));
	assert_int_equal(docker_stop_by_signal(&c), 0);
	assert_int_equal(docker_resume_used(root, ID), 0); /* it was started since */
	assert_false(docker_stops_by_signal(&c));
	docker_container_fini(&c);
}

static void order(void **state)
{
	struct docker_candidate list[] = {
		{ .name = "busy", .order = 100, .bytes = 900 },
		{ .name = "small", .order = 100, .idle = true, .bytes = 1 },
		{ .name = "last", .order = 101, .idle = true, .bytes = 999 },
		{ .name = "large", .order = 100, .idle = true, .bytes = 2 },
		{ .name = "asked", .order = 7 }
	};
	static const char *const want[] = { "asked", "large", "small", "busy", "last" };

	docker_suspend_order(list, ZNS_ARRAY_SIZE(list));
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(list); i++)
		assert_string_equal(list[i].name, want[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(meaning),
		cmocka_unit_test(the_one_it_ended_with),
		cmocka_unit_test(files_since),
		cmocka_unit_test(by_word),
		cmocka_unit_test(started_since),
		cmocka_unit_test(full_disk),
		cmocka_unit_test(files_in_time),
		cmocka_unit_test(files_below),
		cmocka_unit_test(files_linked_again),
		cmocka_unit_test(files_of_no_server),
		cmocka_unit_test(files_of_all_shapes),
		cmocka_unit_test(rights),
		cmocka_unit_test(from_another),
		cmocka_unit_test(from_allow),
		cmocka_unit_test(from_of_pods),
		cmocka_unit_test(from_own_files),
		cmocka_unit_test(from_volumes_of_a_pod),
		cmocka_unit_test(lives),
		cmocka_unit_test(by_signal),
		cmocka_unit_test(order),
		cmocka_unit_test(note),
		cmocka_unit_test(other_engines),
		cmocka_unit_test(podman_must),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
