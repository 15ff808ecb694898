/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns-runc: an OCI runtime, which `znsctl docker install` registers in Docker's daemon.json. It
 * passes every command on to the machine's runc. For checkpoint and restore it puts our criu first
 * in PATH and writes the container's settings to a configuration file of criu. Its own options
 * precede the command: --zns-config DIR, --zns-run DIR, --zns-runc PATH, --zns-docker-root DIR,
 * --zns-version.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "runc.h"
#include "zns-memfd.h"
#include "zns-version.h"
#include "zns/config.h"
#include "zns/handle.h"

/*
 * Returns the value of criu's option --zns-live. NULL: not set. A live dump copies memory while the
 * tasks run, so criu refuses it together with some flags.
 */
static const char *live_value(const struct call *c, const struct docker_settings *s, bool frozen)
{
	if (frozen || call_has_flag(c, "pre-dump") || call_has_flag(c, "lazy-pages"))
		return "no";
	return s->source[DOCKER_LIVE] ? s->value[DOCKER_LIVE] : NULL;
}

#define TCP_CLOSE "tcp-close\n"

static bool tcp_is(const struct docker_settings *s, const char *value)
{
	return s->source[DOCKER_TCP] && !strcmp(s->value[DOCKER_TCP], value);
}

/*
 * Writes the settings as a configuration file of criu. criu reads the file of the annotation
 * org.criu.config after it, so that file overrides it.
 */
static int write_config(const struct docker_container *k, const struct docker_settings *s,
			const char *live, char *path, size_t len, struct zns_err *err)
{
	char text[2048];
	uint64_t ghost;
	size_t n;
	int key, ret;

	/* check the name: a quote in it would end the quoted value early */
	ret = zns_check_container(k->name, err);
	if (!ret)
		ret = docker_run_path(k->id, "conf", path, len, err);
	if (ret)
		return ret;
	n = (size_t)snprintf(text, sizeof(text), "zns-container \"%s\"\n", k->name);
	if (live)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "zns-live=%s\n", live);
	if (s->source[DOCKER_NETWORK_LOCK])
		n += (size_t)snprintf(text + n, sizeof(text) - n, "network-lock %s\n",
				      s->value[DOCKER_NETWORK_LOCK]);
	for (key = 0; key < DOCKER_LIVE; key++)
		if (s->source[key])
			n += (size_t)snprintf(text + n, sizeof(text) - n, "zns-%s %s\n",
					      docker_key_name[key], s->value[key]);
	if (tcp_is(s, "close"))
		n += (size_t)snprintf(text + n, sizeof(text) - n, TCP_CLOSE);
	/* write the value in bytes: criu accepts fewer units than zns.conf does */
	if (s->source[DOCKER_GHOST_LIMIT] && !zns_parse_size(s->value[DOCKER_GHOST_LIMIT], &ghost))
		n += (size_t)snprintf(text + n, sizeof(text) - n, "ghost-limit %llu\n",
				      (unsigned long long)ghost);
	ret = zns_replace_file(AT_FDCWD, path, text, n, 0600);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

/*
 * Writes the options for a restore, or for a dump without zones. A restore needs tcp-close if its
 * dump had it, and runc has no flag for that. A restore is never refused for its bandwidth:
 * zns.admission applies to dumps only.
 */
static int write_few(const struct call *c, const struct docker_container *k,
		     const struct docker_settings *s, bool dump, char *path, size_t len,
		     struct zns_err *err)
{
	bool promise = !dump && s->source[DOCKER_RESTORE_QOS] && call_has_handle(c->image_path);
	char text[DOCKER_SETTING_MAX + 32] = "";
	size_t n = 0;
	int ret;

	if (tcp_is(s, "close"))
		n = (size_t)snprintf(text, sizeof(text), TCP_CLOSE);
	if (promise)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "zns-qos %s\n",
				      s->value[DOCKER_RESTORE_QOS]);
	if (!n)
		return 0;
	ret = docker_run_path(k->id, "conf", path, len, err);
	if (!ret && (ret = zns_replace_file(AT_FDCWD, path, text, n, 0600)))
		zns_fail_sys(err, ret, "cannot write %s", path);
	return ret;
}

/*
 * Adds runc's flags for criu. Docker and CRI pass only --leave-running, and runc's flags override
 * criu's configuration files. File locks are always allowed: nearly every database holds one.
 */
static int add_flags(struct call *c, const struct docker_settings *s, struct zns_err *err)
{
	char list[DOCKER_SETTING_MAX], *flag, *save;
	int ret = call_add_flag(c, "file-locks");

	if (!ret && s->source[DOCKER_TCP] && !tcp_is(s, "close"))
		ret = call_add_flag(c, "tcp-established");
	snprintf(list, sizeof(list), "%s", s->source[DOCKER_CRIU] ? s->value[DOCKER_CRIU] : "");
	for (flag = strtok_r(list, ",", &save); !ret && flag; flag = strtok_r(NULL, ",", &save))
		ret = call_add_flag(c, flag);
	return ret ? zns_fail(err, ret, "no memory for the arguments") : 0;
}

/*
 * Must criu's options come from the container's settings? They must if the caller cannot pass any:
 * dockerd, the kubelet, and Podman's start and stop.
 */
static bool has_no_words(const struct call *c, const struct docker_container *k)
{
	return !strcmp(k->kind, "docker") || !strcmp(k->kind, "cri") || suspend_is_stop(c);
}

static void tell_origin(const struct call *c, const struct docker_container *k, bool frozen)
{
	char text[256], path[PATH_MAX];
	cleanup_free uint8_t *ticket = NULL;
	size_t n;

	setenv(ZNS_ORIGIN_KIND, k->kind, 1);
	setenv(ZNS_ORIGIN_ID, k->id, 1);
	setenv(ZNS_ORIGIN_NAME, k->name, 1);
	setenv(ZNS_ORIGIN_IMAGE, k->image, 1);
	setenv(ZNS_ORIGIN_ROOT, k->root, 1);
	suspend_name(c, k, text, sizeof(text));
	setenv(ZNS_ORIGIN_CHECKPOINT, text, 1);
	if (c->work_path &&
	    (size_t)snprintf(path, sizeof(path), "%s/dump.log", c->work_path) < sizeof(path))
		setenv(ZNS_ORIGIN_LOG, path, 1);
	if (frozen)
		setenv(ZNS_ORIGIN_FROZEN, "1", 1);
	if (!call_has_flag(c, "leave-running") && !call_has_flag(c, "pre-dump"))
		setenv(ZNS_ORIGIN_ENDED, "1", 1);
	if (!docker_run_path(k->id, "ticket", path, sizeof(path), NULL) &&
	    !zns_read_file(AT_FDCWD, path, ZNS_UUID_STR, &ticket, &n))
		setenv(ZNS_ORIGIN_TICKET, (char *)ticket, 1);
}

/*
 * Tells the helper which container is restored. A handle names a checkpoint, and a user who writes
 * the handle could name another container's. Only root may allow that: in zns.conf, or in the file
 * that `znsctl docker clone` puts into the clone's directory.
 */
static int tell_restored(const struct docker_container *k, struct zns_err *err)
{
	cleanup_free uint8_t *clone = NULL;
	char all[8];
	size_t len;
	int ret = zns_config_get("restore-others", all, sizeof(all), err);

	if (ret && ret != -ENOENT)
		return ret;
	if (!ret && strcmp(all, "yes") && strcmp(all, "no"))
		return zns_fail(err, -EINVAL, "restore-others in zns.conf: yes or no");
	if (!ret && !strcmp(all, "yes"))
		setenv(ZNS_RESTORE_ALLOW, "any", 1);
	else if (!strcmp(k->kind, "docker") &&
		 !docker_read_own(k->root, k->id, DOCKER_CLONE_FILE, &clone, &len, NULL))
		setenv(ZNS_RESTORE_ALLOW, (char *)clone, 1);
	/* for a restore that waits, zns.from may have allowed a checkpoint already */
	else if (!getenv("ZNS_HOLD"))
		unsetenv(ZNS_RESTORE_ALLOW);
	setenv(ZNS_RESTORE_ID, k->id, 1);
	setenv(ZNS_RESTORE_NAME, k->name, 1);
	return err->code = 0;
}

/* Accepts only temporary directories of Docker and containerd. */
static bool is_temporary(const char *dir)
{
	const char *base = dir ? strrchr(dir, '/') : NULL;

	return base && (!strncmp(base + 1, "ctrd-checkpoint", 15) ||
			!strncmp(base + 1, "ctd-checkpoint", 14));
}

/*
 * Makes the archive of the checkpoint's directory unique. containerd names stored archives by their
 * hash and refuses one that "already exists" (moby#42900). The directory is small and always the
 * same, so a second start, or a start soon after the checkpoint, would fail. So an empty file is
 * added, whose name has the prefix that archives use for deleted files: it changes the archive and
 * is not unpacked.
 */
static void make_unique(const char *dir)
{
	char path[PATH_MAX];
	uint8_t id[ZNS_UUID_LEN];
	char text[ZNS_UUID_STR];
	int fd;

	if (zns_uuid_generate(id) || (size_t)snprintf(path, sizeof(path), "%s/.wh.zns-%s", dir,
						      zns_uuid_format(id, text)) >= sizeof(path))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

/* Changes the archive of the next start: sets a new time for one of the directory's files. */
static int touch(void *arg, const char *container, const char *name, const char *dir,
		 const uint8_t id[ZNS_UUID_LEN])
{
	char path[PATH_MAX];

	if (!memcmp(arg, id, ZNS_UUID_LEN) &&
	    (size_t)snprintf(path, sizeof(path), "%s/descriptors.json", dir) < sizeof(path))
		utimensat(AT_FDCWD, path, NULL, 0);
	return 0;
}

static void after_restore(const struct call *c, const struct docker_container *k)
{
	cleanup_close int fd = open(c->image_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ZnsPb__Handle *h;

	if (fd < 0 || zns_handle_read(fd, &h, NULL))
		return;
	if (k->root[0] && h->checkpoint.len == ZNS_UUID_LEN)
		docker_each_handle(k->root, touch, h->checkpoint.data);
	zns_pb__handle__free_unpacked(h, NULL);
	/* containerd never removes this directory, and no program reads it again */
	if (is_temporary(c->image_path))
		docker_remove_dir(c->image_path);
}

/* call this first, since Docker shows only the first line of the output */
static void show_output(int out, const char *line)
{
	char buf[4096];
	ssize_t n;

	if (line)
		fprintf(stderr, "%s\n", line);
	lseek(out, 0, SEEK_SET);
	while ((n = read(out, buf, sizeof(buf))) > 0)
		if (zns_write_all(STDERR_FILENO, buf, (size_t)n))
			break;
}

/* Keeps criu's log, of failed restores too. Does nothing for a restore without zones. */
static void keep_log(const struct call *c, const struct docker_container *k)
{
	const char *dir = c->work_path ? c->work_path : c->image_path;
	char path[PATH_MAX];

	if (call_has_handle(c->image_path) &&
	    (size_t)snprintf(path, sizeof(path), "%s/restore.log", dir) < sizeof(path))
		docker_keep_restore_log(k->id, path);
}

/*
 * Checks Docker's own restore command as well: it must not give the container other rights either.
 */
static int check_shape(const struct call *c, const struct docker_container *k, struct zns_err *err)
{
	int ret = 0;

	if (!strcmp(k->kind, "docker") && c->image_path)
		ret = docker_shape_check(k, c->image_path, err);
	if (ret == -ENOENT)
		ret = err->code = 0;
	return ret;
}

static int run(struct call *c, const struct docker_container *k, bool dump)
{
	/*
	 * The output of a dump goes to a memfd and not to a pipe, since nobody reads while runc
	 * writes. The output of a restore belongs to the container and stays unchanged.
	 */
	int out = dump ? zns_memfd("zns-runc") : -1, status;
	char line[600];
	bool found = false;
	struct timespec since;

	clock_gettime(CLOCK_REALTIME_COARSE, &since);
	status = call_run(c, out);
	if (status < 0) {
		report_line(c, "zns-runc: cannot start runc");
		return 1;
	}
	if (status)
		found = !report_find(c, dump ? "dump.log" : "restore.log", &since, line,
				     sizeof(line));
	if (out >= 0)
		show_output(out, found ? line : NULL);
	else if (found)
		report_line(c, line);
	if (dump && !status && is_temporary(c->image_path) && call_has_handle(c->image_path))
		make_unique(c->image_path);
	if (!dump) {
		keep_log(c, k);
		after_restore(c, k);
	}
	return status;
}

static int fail(const struct call *c, const char *line)
{
	const struct call plain = { 0 };

	/*
	 * Write it to the log and to the output: it depends on the command which one Docker reads.
	 */
	if (c->log)
		report_line(c, line);
	report_line(&plain, line);
	return 1;
}

/*
 * Podman calls the runtime without dockerd. Its own arguments show what it will do with the image
 * directory.
 */
static enum podman_call called_by_podman(void)
{
	cleanup_free uint8_t *args = NULL;
	char path[64];
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)getppid());
	return zns_read_file(AT_FDCWD, path, 65536, &args, &len) ?
		       PODMAN_OTHER :
		       podman_call_of((char *)args, len);
}

/*
 * Is this dump an export, which is made without zones? Other directories may be exported later, so
 * their path is not recorded: `znsctl gc` must not remove such a checkpoint when the directory is
 * gone.
 */
static bool is_export(const struct call *c, struct docker_container *k, const char *bundle)
{
	enum podman_call call = strcmp(k->kind, "podman") ? PODMAN_OTHER :
				suspend_is_stop(c)        ? PODMAN_KEPT :
							    called_by_podman();

	if (call == PODMAN_KEPT &&
	    podman_root(bundle, k->id, c->image_path, k->root, sizeof(k->root)))
		k->root[0] = 0;
	return call == PODMAN_EXPORTED;
}

static bool wants_zones(const struct call *c, struct docker_container *k,
			const struct docker_settings *s, const char *bundle)
{
	return !(s->source[DOCKER_DEV] && !strcmp(s->value[DOCKER_DEV], "none")) &&
	       !is_export(c, k, bundle);
}

/*
 * Removes the notes of a resume. For Podman this is done here, since only Docker records when a
 * container was started.
 */
static int use_up_podman(const struct docker_container *k, struct zns_err *err)
{
	int ret = *k->bundle ? docker_resume_used_by(k) : 0;

	return ret ? zns_fail_sys(
			     err, ret,
			     "not started, since its memory could be restored a second time: cannot write a note in %s",
			     k->bundle) :
		     0;
}

static int checkpoint_or_restore(struct call *c, bool dump)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container k = { .kind = "runc" };
	struct docker_settings s;
	struct wants_memory w;
	struct docker_state state = { .bundle = "." };
	char conf[PATH_MAX] = "";
	const char *old = secure_getenv("PATH");
	cleanup_free char *path = NULL;
	struct ended ended = { .init = -1, .lock = -1 };
	bool zones;
	int ret = 0;

	if (asprintf(&path, "%s:%s", c->libexec,
		     old && *old ? old : "/usr/sbin:/usr/bin:/sbin:/bin") < 0)
		return fail(c, "zns-runc: out of memory");
	setenv("PATH", path, 1);
	if (!docker_good_id(c->id))
		ret = zns_fail(&err, -EINVAL, "zns-runc: impossible container id");
	else if (dump)
		ret = docker_state_read(c->root, c->id, &state, &err);
	else if (c->bundle)
		snprintf(state.bundle, sizeof(state.bundle), "%s", c->bundle);
	if (!ret)
		ret = docker_container_read(&(struct docker_runtime){ c->docker_root, c->root },
					    state.bundle, c->id, &k, &err);
	if (!ret) {
		docker_container_podman(&k, state.init_pid);
		ret = docker_settings_read(&k, &s, &err);
	}
	/* other callers of runc choose criu's options themselves */
	if (!ret && has_no_words(c, &k))
		ret = add_flags(c, &s, &err);
	zones = !ret && dump && wants_zones(c, &k, &s, state.bundle);
	if (zones)
		ret = write_config(&k, &s, live_value(c, &s, state.frozen), conf, sizeof(conf),
				   &err);
	else if (!ret)
		ret = write_few(c, &k, &s, dump, conf, sizeof(conf), &err);
	if (!ret && !dump)
		ret = tell_restored(&k, &err)          ?:
			      check_shape(c, &k, &err) ?:
							 links_resolve(state.bundle, &err);
	/* for a restore that waits, the note stays until start */
	if (!ret && !dump && !getenv("ZNS_HOLD"))
		ret = use_up_podman(&k, &err);
	if (!ret && dump)
		ret = ended_prepare(c, &k, &state, &ended, &err);
	if (ret) {
		if (*conf)
			unlink(conf);
		if (!dump && c->image_path)
			after_restore(c, &k);
		docker_container_fini(&k);
		return fail(c, err.msg);
	}
	if (*conf)
		setenv("CRIU_CONFIG_FILE", conf, 1);
	if (!dump && tcp_is(&s, "auto"))
		setenv("ZNS_TCP", "auto", 1);
	if (zones) {
		tell_origin(c, &k, state.frozen);
		netlock_tell(k.id);
	}
	ret = run(c, &k, dump);
	if (dump)
		ended_finish(c, &k, &ended, ret);
	if (!ret && !dump) {
		netlock_forget(k.id);
		/* `docker start --checkpoint`: the container runs from now on */
		docker_resume_used_by(&k);
	}
	if (*conf)
		unlink(conf);
	docker_container_fini(&k);
	if (!ret && !dump && extend_wanted(c, &w))
		extend_begin(c, &w, true);
	return ret;
}

static int check_memory(const struct docker_container *k, struct docker_settings *s,
			struct zns_err *err)
{
	struct docker_memory m;
	int ret = docker_memory_parse(s->value[DOCKER_MEMORY], "zns.memory", &m, err);

	if (!ret && m.wanted && s->source[DOCKER_DEV] && !strcmp(s->value[DOCKER_DEV], "none"))
		ret = zns_fail(err, -EINVAL, "zns.memory needs zones, but zns.dev is none");
	if (!ret && s->source[DOCKER_MEMORY_MIN])
		zns_parse_size(s->value[DOCKER_MEMORY_MIN], &m.min);
	if (!ret && m.wanted)
		ret = docker_memory_size(k, &m, err);
	return ret ? ret : docker_rules(k, s, err);
}

/*
 * Reports settings that are not valid at create, before the first checkpoint. *@held: the container
 * resumes from a checkpoint whose restore waits for start, and runc is not called.
 */
static int check_created(struct call *c, bool *held, struct zns_err *err)
{
	const struct docker_runtime rt = { c->docker_root, c->root };
	struct docker_container k;
	struct docker_settings s;
	int ret = docker_container_read(&rt, c->bundle ? c->bundle : ".", c->id, &k, err);

	if (ret && ret != -EPERM && ret != -EINVAL) { /* runc itself reports this error better */
		docker_container_fini(&k);
		return 0;
	}
	if (!ret)
		ret = docker_settings_known(&k, err);
	if (!ret)
		ret = docker_settings_own(&k, &s, err);
	if (!ret)
		ret = feasible_qos(&s, err);
	if (!ret && s.source[DOCKER_MEMORY])
		ret = check_memory(&k, &s, err);
	/* conmon is the parent of this process, as of the container's first process */
	docker_container_podman(&k, getpid());
	k.pid_file = c->pid_file;
	if (!ret && !strcmp(c->command, "create"))
		ret = hold_create(c, &k, held, err);
	if (!ret && !*held && docker_good_id(c->id))
		netlock_lift(&k);
	docker_container_fini(&k);
	return ret;
}

/* runc has started the container, so the checkpoint that ended it must not be used again */
static int use_up(const struct call *c, const char *bundle, struct zns_err *err)
{
	struct docker_container k = { .kind = "podman" };

	if (!podman_bundle(bundle, c->id)) {
		docker_resume_used(c->docker_root, c->id);
		return 0;
	}
	snprintf(k.bundle, sizeof(k.bundle), "%s", bundle);
	return use_up_podman(&k, err);
}

/*
 * Prints our help, then runc's. --version is passed to runc only, since Docker parses its output.
 */
static void own_help(void)
{
	printf("zns-runc is runc whose checkpoints are on zones; `znsctl docker install`\n"
	       "registers it, see znsctl-docker(8).\n"
	       "Its own options come before the command:\n"
	       "   --zns-config DIR, --zns-run DIR   instead of /etc/zns-criu and /run/zns-criu\n"
	       "   --zns-runc PATH                   the runc to call; else the first in PATH\n"
	       "   --zns-version                     which build this is\n"
	       "Everything else is runc's:\n\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct call c = { 0 };
	struct docker_state state;
	struct wants_memory w;
	char runc[PATH_MAX];
	bool held = false;
	int ret;

	if (zns_std_fds())
		return 1;
	if (argc == 2 && !strcmp(argv[1], "--zns-version")) {
		printf("zns-runc: ZNS-CRIU %s\n", ZNS_VERSION);
		return fflush(stdout) ? 1 : 0;
	}
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		own_help();
	if (call_parse(argc, argv, &c, &err) || call_find_runc(&c, runc, sizeof(runc), &err))
		return fail(&c, err.msg);
	c.argv[0] = runc;
	/* Podman runs `checkpoint --help` to find out whether the command exists. */
	if (c.command && c.id && *c.id != '-') {
		if (!strcmp(c.command, "checkpoint") || !strcmp(c.command, "restore"))
			return checkpoint_or_restore(&c, *c.command == 'c');
		if (!strcmp(c.command, "create") || !strcmp(c.command, "start"))
			orphan_watch(&c);
		if ((!strcmp(c.command, "create") || !strcmp(c.command, "run")) &&
		    check_created(&c, &held, &err))
			return fail(&c, err.msg);
		if (held)
			return 0;
		ret = hold_call(&c, &err);
		if (ret != -ENOENT)
			return ret ? fail(&c, err.msg) : 0;
		/* After an abandoned restore there is no container that runs. Its note stays. */
		if (!strcmp(c.command, "start") && docker_good_id(c.id) &&
		    !docker_state_read(c.root, c.id, &state, &err) &&
		    use_up(&c, state.bundle, &err))
			return fail(&c, err.msg);
		err.code = 0;
		if (pause_call(&c) || suspend_kill(&c))
			return 0;
		if (!strcmp(c.command, "start") && extend_wanted(&c, &w))
			return extend_start(&c, &w);
		if (!strcmp(c.command, "delete"))
			extend_forget(&c);
	}
	execv(runc, c.argv);
	fprintf(stderr, "%s: %s\n", runc, strerror(errno));
	return 1;
}
