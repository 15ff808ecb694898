/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker install, uninstall: adds our runtime to the daemon's configuration file, which is valid at
 * every moment
 */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "docker_cmd.h"

#define BACKUP ".before-zns"

struct edit {
	char path[PATH_MAX], backup[PATH_MAX];
	char root[PATH_MAX]; /* Docker's data root */
	const char *name, *runc, *host, *data_root;
	bool dry_run, exists;
	unsigned mode;
	struct json_object *o;
	struct ctl_args args;
};

/* Is it runc, and not zns-runc? zns-runc would call itself for ever. */
static bool is_runc(const char *path)
{
	char *argv[] = { (char *)path, (char *)"--version", NULL };
	const char *base = strrchr(path, '/');
	posix_spawn_file_actions_t fa;
	struct stat st;
	int status;
	pid_t pid;

	if (*path != '/' || stat(path, &st) || !S_ISREG(st.st_mode) || access(path, X_OK) ||
	    !strcmp(base, "/zns-runc"))
		return false;
	posix_spawn_file_actions_init(&fa);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR, 0);
	status = posix_spawn(&pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return !status && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static int parse(const struct ctl_cmd *cmd, int argc, char **argv, struct edit *e,
		 struct zns_err *err)
{
	const char *config = DOCKER_CONFIG;
	struct stat st;
	int ret;
	const struct ctl_opt opts[] = { CTL_TEXT("config", &config),
					CTL_TEXT("name", &e->name),
					CTL_TEXT("runc", &e->runc),
					CTL_FLAG("dry-run", &e->dry_run),
					CTL_TEXT("data-root", &e->data_root),
					CTL_TEXT("host", &e->host),
					CTL_OPTS_END };

	e->name = "zns";
	if (ctl_parse(cmd, argc, argv, opts, &e->args))
		return e->args.code == CTL_OK ? 1 : -EINVAL;
	if (e->args.argc) {
		e->args.code = ctl_usage(cmd, "no argument is taken");
		return -EINVAL;
	}
	e->args.code = CTL_FAILED;
	if (!docker_good_name(e->name) || !strcmp(e->name, "runc"))
		return zns_fail(err, -EINVAL, "\"%.40s\" cannot be a runtime's name", e->name);
	if (e->runc && !is_runc(e->runc))
		return zns_fail(
			err, -EINVAL,
			"--runc %s: the absolute path of a runc is wanted, and `%s --version` must work",
			e->runc, e->runc);
	if (e->data_root && (*e->data_root != '/' || strlen(e->data_root) >= sizeof(e->root)))
		return zns_fail(err, -EINVAL, "--data-root %.200s: an absolute path is wanted",
				e->data_root);
	/* if the file is a symbolic link, edit its target and keep the link */
	if (!realpath(config, e->path) &&
	    (size_t)snprintf(e->path, sizeof(e->path), "%s", config) >= sizeof(e->path))
		return zns_fail(err, -ENAMETOOLONG, "the path of the configuration is too long");
	if ((size_t)snprintf(e->backup, sizeof(e->backup), "%s" BACKUP, e->path) >=
	    sizeof(e->backup))
		return zns_fail(err, -ENAMETOOLONG, "the path of the configuration is too long");
	e->exists = !stat(e->path, &st);
	e->mode = e->exists ? st.st_mode & 0777 : 0644;
	if (!e->exists || !st.st_size) {
		e->o = json_object_new_object();
		return 0;
	}
	ret = zns_json_read(e->path, &e->o, err);
	if (!ret && !json_object_is_type(e->o, json_type_object))
		ret = zns_fail(err, -EBADMSG, "%s is not a JSON object: correct it first", e->path);
	return ret;
}

static struct json_object *runtimes_of(struct edit *e, struct zns_err *err)
{
	struct json_object *r = zns_json_get(e->o, "runtimes");

	if (r && !json_object_is_type(r, json_type_object)) {
		zns_fail(err, -EBADMSG, "%s: \"runtimes\" is not an object: correct it first",
			 e->path);
		return NULL;
	}
	if (!r) {
		r = json_object_new_object();
		json_object_object_add(e->o, "runtimes", r);
	}
	return r;
}

/*
 * Finds the directory in which the daemon keeps its containers: as given by the option, else as
 * reported by the running daemon if it uses this file, else as the file says.
 */
static int find_root(struct edit *e, struct zns_err *err)
{
	const char *in_file = zns_json_str(e->o, "data-root"), *root = e->data_root;
	bool its_file = e->host || secure_getenv("DOCKER_HOST") || !strcmp(e->path, DOCKER_CONFIG);
	struct zns_err ignored = ZNS_ERR_INIT;
	struct docker_daemon d = { 0 };
	bool daemon;

	daemon = !root && its_file && !docker_daemon_open(&d, e->host, &ignored);
	if (!root && e->host && !daemon)
		return zns_fail(err, ignored.code, "%s", ignored.msg);
	/*
	 * With userns-remap the daemon's root is below the one in the file. If they differ in
	 * another way, the file was changed after the daemon had started.
	 */
	if (daemon && (!in_file || !strncmp(d.root, in_file, strlen(in_file))))
		root = d.root;
	if (!root)
		root = in_file && *in_file == '/' ? in_file : DOCKER_DEFAULT_ROOT;
	snprintf(e->root, sizeof(e->root), "%s", root);
	docker_daemon_close(&d);
	return 0;
}

static void add_arg(struct json_object *list, const char *option, const char *value)
{
	json_object_array_add(list, json_object_new_string(option));
	json_object_array_add(list, json_object_new_string(value));
}

static struct json_object *our_runtime(const struct edit *e, struct zns_err *err)
{
	struct json_object *r, *list;
	char found[PATH_MAX], path[PATH_MAX];

	if (zns_find_program("zns-runc", found, sizeof(found)) || !realpath(found, path)) {
		zns_fail(err, -ENOENT,
			 "zns-runc is not installed beside znsctl nor in ../libexec/zns-criu");
		return NULL;
	}
	r = json_object_new_object();
	list = json_object_new_array();
	/* pass it as an argument: the daemon does not have our environment */
	if (secure_getenv("ZNS_CONFIG"))
		add_arg(list, "--zns-config", zns_config_dir());
	if (secure_getenv("ZNS_RUN"))
		add_arg(list, "--zns-run", zns_run_dir());
	if (e->runc)
		add_arg(list, "--zns-runc", e->runc);
	/*
	 * Pass it as an argument of the runtime, so that only the installer decides it, and never a
	 * container, whose creator chooses the contents of its files.
	 */
	add_arg(list, "--zns-docker-root", e->root);
	json_object_object_add(r, "path", json_object_new_string(path));
	json_object_object_add(r, "runtimeArgs", list);
	return r;
}

static int save(struct edit *e, bool backup, struct zns_err *err)
{
	const char *text = json_object_to_json_string_ext(e->o,
							  JSON_C_TO_STRING_PRETTY |
								  JSON_C_TO_STRING_SPACED |
								  JSON_C_TO_STRING_NOSLASHESCAPE);
	cleanup_free char *line = NULL;
	cleanup_free uint8_t *old = NULL;
	size_t len;
	int ret;

	if (asprintf(&line, "%s\n", text) < 0)
		return zns_fail(err, -ENOMEM, "out of memory");
	if (e->dry_run) {
		fputs(line, stdout);
		return 0;
	}
	if (backup && e->exists) {
		ret = zns_read_file(AT_FDCWD, e->path, MIB(8), &old, &len);
		if (!ret)
			ret = zns_replace_file(AT_FDCWD, e->backup, old, len, e->mode);
		if (ret)
			return zns_fail_sys(err, ret, "cannot keep a copy at %s", e->backup);
	}
	if (!e->exists) { /* not every package creates /etc/docker */
		char dir[PATH_MAX];

		snprintf(dir, sizeof(dir), "%.*s",
			 (int)(strrchr(e->path, '/') ? strrchr(e->path, '/') - e->path : 0),
			 e->path);
		if (*dir && mkdir(dir, 0755) && errno != EEXIST)
			return zns_fail_sys(err, -errno, "cannot make %s", dir);
		/* tells `uninstall` that there was no file before */
		ret = backup ? zns_replace_file(AT_FDCWD, e->backup, "{}\n", 3, e->mode) : 0;
		if (ret)
			return zns_fail_sys(err, ret, "cannot write %s", e->backup);
	}
	ret = zns_replace_file(AT_FDCWD, e->path, line, strlen(line), e->mode);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", e->path) : 0;
}

static int answer(const struct edit *e, bool changed, bool restart, const char *what)
{
	struct json_object *j;

	if (e->args.json) {
		j = ctl_obj(J("config", (const char *)e->path), J("runtime", e->name));
		if (*e->root)
			json_object_object_add(j, "data_root", ctl_j_text(e->root));
		return ctl_print_json(ctl_json_join(j, ctl_obj(J("changed", changed),
							       J("restart_needed", restart))));
	}
	if (!changed) {
		printf("%s: runtime %s is %s; nothing was changed\n", e->path, e->name, what);
		return CTL_OK;
	}
	printf("%s: runtime %s is now %s\n", e->path, e->name, what);
	if (*e->root)
		printf("containers are looked up in Docker's data root %s (--data-root names another)\n",
		       e->root);
	printf(restart ?
		       "next: restart Docker's daemon (systemctl restart docker), it reads \"experimental\" only at "
		       "its start\n" :
		       "next: make Docker's daemon read its configuration (systemctl reload docker, or send it "
		       "SIGHUP)\n");
	return CTL_OK;
}

int docker_install(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct json_object *ours, *all, *old, *exp;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_registered reg;
	struct edit e = { 0 };
	bool had_exp, same;
	int ret = parse(cmd, argc, argv, &e, &err);

	if (ret > 0)
		return CTL_OK;
	all = ret ? NULL : runtimes_of(&e, &err);
	ours = all && !find_root(&e, &err) ? our_runtime(&e, &err) : NULL;
	if (!ours) {
		json_object_put(e.o);
		return err.code ? ctl_fail(cmd, &err) : e.args.code;
	}
	exp = zns_json_get(e.o, "experimental");
	had_exp = exp && json_object_get_boolean(exp);
	old = zns_json_get(all, e.name);
	same = old && json_object_equal(old, ours);
	if (same && had_exp) {
		json_object_put(ours);
		ret = answer(&e, false, false, "registered");
	} else {
		bool backup = !old;

		json_object_object_add(all, e.name, ours);
		json_object_object_add(e.o, "experimental", json_object_new_boolean(true));
		ret = save(&e, backup, &err) ? ctl_fail(cmd, &err) :
		      e.dry_run              ? CTL_OK :
					       answer(&e, true, !had_exp, "registered");
		if (ret == CTL_OK && !e.dry_run && !e.args.json &&
		    zns_resolve_device(NULL, &reg, &err))
			printf("note: no checkpoint can be made yet: %s\n", err.msg);
	}
	json_object_put(e.o);
	return ret;
}

/* Was "experimental" added by us? We added it only if the original file lacked it. */
static bool experimental_was_ours(const struct edit *e)
{
	struct json_object *b = NULL, *x;
	bool ours;

	if (access(e->backup, F_OK))
		return false;
	if (zns_json_read(e->backup, &b, NULL))
		return false;
	x = zns_json_get(b, "experimental");
	ours = !x || !json_object_get_boolean(x);
	json_object_put(b);
	return ours;
}

int docker_uninstall(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct json_object *all;
	struct edit e = { 0 };
	const char *def;
	bool restart;
	int ret = parse(cmd, argc, argv, &e, &err);

	if (ret > 0)
		return CTL_OK;
	all = ret ? NULL : runtimes_of(&e, &err);
	if (!all) {
		json_object_put(e.o);
		return err.code ? ctl_fail(cmd, &err) : e.args.code;
	}
	def = zns_json_str(e.o, "default-runtime");
	if (def && !strcmp(def, e.name)) {
		ret = zns_fail(&err, -EBUSY, "%s: \"default-runtime\" is %s: set another one first",
			       e.path, e.name);
	} else if (!zns_json_get(all, e.name)) {
		ret = answer(&e, false, false, "not registered");
		json_object_put(e.o);
		return ret;
	}
	restart = experimental_was_ours(&e);
	if (!ret) {
		json_object_object_del(all, e.name);
		if (!json_object_object_length(all))
			json_object_object_del(e.o, "runtimes");
		if (restart)
			json_object_object_del(e.o, "experimental");
		ret = save(&e, false, &err);
	}
	if (ret)
		ctl_fail(cmd, &err);
	else if (!e.dry_run)
		answer(&e, true, restart, "not registered");
	json_object_put(e.o);
	return ret ? CTL_FAILED : CTL_OK;
}
