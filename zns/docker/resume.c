/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Decides from which checkpoint a container resumes at its next start. Only the checkpoint that
 * ended the container fits its files, and only once: when the container has run again, its files
 * are newer than that memory. Any other checkpoint must be requested by name.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include "docker.h"
#include "zns/journal.h"

/* s; if a container ends sooner than this after a resume, its memory may be the cause */
#define SHORT_S 10
/* ms; limit for the check of the container's files, during which its start waits */
#define LOOK_MS 30000

static bool is_kept(const struct docker_container *c)
{
	return *c->bundle || !strcmp(c->kind, "docker");
}

/* Does the container itself set @key? Rules and defaults may be meant for other containers. */
static bool by_itself(const struct docker_settings *s, enum docker_key key)
{
	const char *source = s->source[key];

	return source && strcmp(source, "rule") && strcmp(source, "default");
}

/*
 * Should @c begin with a checkpoint? A rule or default that names a checkpoint of a pod applies to
 * pods only, and any other one to all other containers.
 */
static bool begins(const struct docker_container *c, const struct docker_settings *s)
{
	const char *slash = s->source[DOCKER_FROM] ? strchr(s->value[DOCKER_FROM], '/') : NULL;
	bool of_pod = slash && strchr(slash + 1, '/');

	return s->source[DOCKER_FROM] &&
	       (by_itself(s, DOCKER_FROM) || of_pod == !strcmp(c->kind, "cri"));
}

static bool begins_in_pod(const struct docker_container *c, const struct docker_settings *s)
{
	return !strcmp(c->kind, "cri") && !docker_is_sandbox(c) && begins(c, s);
}

/* Writes or removes file @name of the engine's directory of @c. -errno: it is as it was. */
static int write_own(const struct docker_container *c, const char *name, const char *text,
		     size_t len)
{
	char path[PATH_MAX];

	return docker_own_path(c, name, path, sizeof(path)) ?:
		       zns_replace_file(AT_FDCWD, path, text, len, 0600);
}

static int unlink_own(const struct docker_container *c, const char *name)
{
	char path[PATH_MAX];
	int ret = docker_own_path(c, name, path, sizeof(path));

	return ret ? ret : unlink(path) ? -errno : 0;
}

/* Reads a note: a checkpoint's name, and its times. -ENOENT: there is no such note. */
static int read_note(const struct docker_container *c, const char *file, char *name, size_t len,
		     struct docker_frozen *when, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	long long at = 0, dumped = 0;
	size_t n;
	int ret = docker_read_kept(c, file, &text, &n, err);

	if (ret)
		return ret;
	n = strcspn((char *)text, " \n");
	/* Notes of earlier releases have one time instead of two. */
	if (sscanf((char *)text + n, " %lld %lld", &at, &dumped) < 2)
		dumped = at;
	*when = (struct docker_frozen){ at, dumped };
	text[n] = 0;
	if (n >= len || !docker_good_word((char *)text))
		return zns_fail(err, -EINVAL, "%s names no checkpoint", file);
	snprintf(name, len, "%s", (char *)text);
	return 0;
}

static bool made_at(int dir, const char *name, int64_t *ns)
{
	char path[300];
	struct stat st;

	if ((size_t)snprintf(path, sizeof(path), "%s/inventory.img", name) >= sizeof(path) ||
	    fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	*ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	return true;
}

/*
 * Is this directory a checkpoint's? Podman's directory also contains directories that the container
 * may write, such as its /dev/shm.
 */
static bool counts(const struct docker_container *c, int all, const char *name)
{
	return !*c->bundle || (!strncmp(name, DOCKER_STOP_PREFIX, strlen(DOCKER_STOP_PREFIX)) &&
			       docker_only_roots(all, name));
}

static void find_latest(const struct docker_container *c, const char *dir, char *name, size_t len)
{
	int64_t newest = INT64_MIN, ns;
	DIR *d = opendir(dir);
	struct dirent *e;

	*name = 0;
	while (d && (e = readdir(d))) {
		if (!docker_good_word(e->d_name) || !counts(c, dirfd(d), e->d_name) ||
		    !made_at(dirfd(d), e->d_name, &ns) || ns <= newest)
			continue;
		newest = ns;
		snprintf(name, len, "%s", e->d_name);
	}
	if (d)
		closedir(d);
}

int docker_shape_check(const struct docker_container *c, const char *dir, struct zns_err *err)
{
	struct json_object *was;
	char path[PATH_MAX];
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/" DOCKER_SHAPE_FILE, dir) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "%.200s: the path is too long", dir);
	ret = zns_json_read(path, &was, err);
	if (ret == -ENOENT)
		return zns_fail(
			err, ret,
			"it does not say which rights it has: it was made without zns-runc, "
			"or by one of before");
	if (ret)
		return ret;
	docker_mark_namespaces(c->spec);
	ret = docker_compare(was, c->spec, !strcmp(c->kind, "cri"), err);
	json_object_put(was);
	return ret;
}

static int check(const struct docker_container *c, struct docker_resume *r, struct zns_err *err)
{
	int64_t ns;
	int ret = docker_shape_check(c, r->dir, err);

	if (access(r->dir, F_OK) || !made_at(AT_FDCWD, r->dir, &ns))
		ret = zns_fail(err, -ENOENT, "the container has no such checkpoint");
	return ret ? zns_wrap(err, "checkpoint %s", r->name) : 0;
}

/*
 * Was the container ever started? For Docker, StartedAt has the year 1 until then. Podman stores
 * that in a database, so only a note of ours tells, which every stop and resume leaves.
 */
static bool has_run(const struct docker_container *c)
{
	const char *at = zns_json_str(zns_json_get(c->config, "State"), "StartedAt");
	char path[PATH_MAX];

	if (*c->bundle)
		return !docker_own_path(c, DOCKER_NOTE_FILE, path, sizeof(path)) &&
		       !access(path, F_OK);
	return at && strncmp(at, "0001-", 5);
}

/*
 * Was there a cold create after @since_ns? Podman does not record starts, but each create writes
 * the PID file again. A create whose restore waits for start sets the time of this file to 1970
 * (hold.c), so it is not counted.
 */
static bool created_since(const struct docker_container *c, int64_t since_ns)
{
	struct stat st;

	return *c->bundle && c->pid_file && !lstat(c->pid_file, &st) &&
	       st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec > since_ns;
}

/*
 * Finds the checkpoint that ended the container. -ENOENT: none did, or the container was started
 * since, perhaps by a runtime that does not know our note.
 */
static int read_ended(const struct docker_container *c, char *name, size_t len,
		      struct docker_frozen *when, struct zns_err *err)
{
	int ret = read_note(c, DOCKER_ENDED_FILE, name, len, when, err);

	if (!ret && (docker_started_since(c->config, when->at_ns) || created_since(c, when->at_ns)))
		return zns_fail(err, -ENOENT, "container %s was started since", c->name);
	return ret;
}

/* The path of the directory that the engine keeps for this container. */
static int own_dir(const struct docker_container *c, char *out, size_t len, struct zns_err *err)
{
	if (docker_own_path(c, "", out, len))
		return zns_fail(err, -ENAMETOOLONG, "the path of its directory is too long");
	return 0;
}

static int choose(const struct docker_container *c, const char *wish, struct docker_resume *r,
		  struct zns_err *err)
{
	char own[PATH_MAX], all[PATH_MAX];
	cleanup_close int dir = -1;
	struct docker_frozen when;
	bool ended;
	int ret = read_note(c, DOCKER_RESUME_FILE, r->name, sizeof(r->name), &when, err);

	if (ret && ret != -ENOENT)
		return ret;
	r->asked = !ret;
	if (r->asked) {
		r->or_cold = false;
		wish = strcmp(r->name, "ended") ? "no" : "ended";
	}
	if (docker_checkpoints_path(c, all, sizeof(all)))
		return zns_fail(err, -ENAMETOOLONG, "the path of its checkpoints is too long");
	ended = !strcmp(wish, "ended");
	if (ended)
		ret = read_ended(c, r->name, sizeof(r->name), &when, err);
	else if (!r->asked && !strcmp(wish, "latest"))
		find_latest(c, all, r->name, sizeof(r->name));
	else if (!r->asked && strcmp(wish, "no") && has_run(c))
		snprintf(r->name, sizeof(r->name), "%s", wish);
	if (ended && ret == -ENOENT && r->asked)
		return zns_fail(err, ret, "it did not end with a checkpoint, or was started since");
	if (ended && ret == -ENOENT) {
		*r->name = 0;
		r->lost = has_run(c);
	} else if (ended && ret)
		return ret;
	if (!*r->name)
		return 0;
	if ((size_t)snprintf(r->dir, sizeof(r->dir), "%s/%s", all, r->name) >= sizeof(r->dir))
		return zns_fail(err, -ENAMETOOLONG, "the path of checkpoint %s is too long",
				r->name);
	dir = open(all, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!counts(c, dir, r->name))
		return zns_fail(err, -ENOENT,
				"%s is no checkpoint " DOCKER_STOP_PREFIX
				"TIME of it that only root can write",
				r->name);
	ret = check(c, r, err);
	if (!ret && ended)
		ret = own_dir(c, own, sizeof(own), err) ?:
			      docker_written_since(c->spec, own, &when, LOOK_MS, err);
	return ret;
}

/*
 * The memory comes from another container and does not fit the volumes of this one, so this one
 * must not have any.
 */
static int no_volumes(const struct docker_container *c, struct zns_err *err)
{
	char own[PATH_MAX];

	return own_dir(c, own, sizeof(own), err) ?: docker_has_volumes(c->spec, own, err);
}

/*
 * May the container start cold if it cannot be resumed? By default: yes if it would resume from the
 * checkpoint that ended it, no if a checkpoint was requested by name.
 */
static bool or_cold(const struct docker_settings *s, const char *wish)
{
	return s->source[DOCKER_RESUME_ELSE] ? !strcmp(s->value[DOCKER_RESUME_ELSE], "cold") :
					       !strcmp(wish, "ended");
}

bool docker_resume_in_vain(const struct docker_container *c, const struct docker_settings *s)
{
	return !is_kept(c) && (by_itself(s, DOCKER_SUSPEND) || by_itself(s, DOCKER_STOP) ||
			       by_itself(s, DOCKER_RESUME));
}

bool docker_resume_must(const struct docker_container *c, const struct docker_settings *s)
{
	const char *wish = s->source[DOCKER_RESUME] ? s->value[DOCKER_RESUME] : "no";
	char path[PATH_MAX];

	if (begins_in_pod(c, s))
		return !or_cold(s, "");
	if (!is_kept(c))
		return false;
	if (!docker_own_path(c, DOCKER_RESUME_FILE, path, sizeof(path)) && !access(path, F_OK))
		return true;
	if (!*c->bundle && !has_run(c) && begins(c, s))
		return !or_cold(s, "");
	return has_run(c) && strcmp(wish, "no") && !or_cold(s, wish);
}

static int choose_in_pod(const struct docker_container *c, const struct docker_settings *s,
			 struct docker_resume *r, struct zns_err *err)
{
	int ret = docker_from_store(c, s, r, err);

	r->or_cold = or_cold(s, "");
	if (!ret && !*r->dir) {
		docker_note(c, LOG_INFO, "started cold: zns.from=%s is of another container",
			    s->value[DOCKER_FROM]);
		return 0;
	}
	ret = ret                                          ?:
		      docker_shape_check(c, r->dir, err)   ?:
		      docker_has_volumes(c->spec, "", err) ?:
							     docker_has_files(c->spec, err);
	if (!ret)
		return err->code = 0;
	docker_from_forget(c->id);
	*r->dir = 0;
	return ret;
}

int docker_resume_choose(const struct docker_container *c, const struct docker_settings *s,
			 struct docker_resume *r, struct zns_err *err)
{
	const char *wish = s->source[DOCKER_RESUME] ? s->value[DOCKER_RESUME] : "no";
	int ret;

	memset(r, 0, sizeof(*r));
	r->or_cold = or_cold(s, wish);
	if (begins_in_pod(c, s))
		return choose_in_pod(c, s, r, err);
	if (strcmp(c->kind, "docker") && strcmp(c->kind, "cri") && by_itself(s, DOCKER_FROM)) {
		r->or_cold = or_cold(s, "");
		return zns_fail(err, -EOPNOTSUPP,
				"zns.from is for containers of Docker and Kubernetes alone");
	}
	if (!is_kept(c))
		return 0;
	ret = choose(c, wish, r, err);
	if (!ret && !*r->dir && !*c->bundle && !has_run(c) && begins(c, s)) {
		if (!s->source[DOCKER_RESUME_ELSE])
			r->or_cold = false;
		ret = docker_from(c, s, r, err)  ?:
			      check(c, r, err)   ?:
			      no_volumes(c, err) ?:
						   docker_has_files(c->spec, err);
	}
	if (ret)
		*r->dir = 0;
	else
		err->code = 0;
	return ret;
}

#define RESERVED DOCKER_ENDED_FILE ".next"

/*
 * The length of the text does not depend on the times, so a reserved note can be overwritten in
 * place.
 */
static int ended_text(const char *name, const struct docker_frozen *when, char *out, size_t len)
{
	return snprintf(out, len, "%s %020lld %020lld\n", name, (long long)when->at_ns,
			(long long)when->dumped_ns);
}

int docker_resume_reserve(const struct docker_container *c, const char *name)
{
	char text[300];
	int n;

	if (!is_kept(c) || !docker_good_word(name))
		return -EINVAL;
	n = ended_text(name, &(struct docker_frozen){ 0 }, text, sizeof(text));
	return write_own(c, RESERVED, text, (size_t)n);
}

void docker_resume_unreserve(const struct docker_container *c)
{
	unlink_own(c, RESERVED);
}

/*
 * Writes @text over the file that was reserved before the dump. -errno: there is no such file, and
 * nothing was written.
 */
static int write_over_reserved(const struct docker_container *c, const char *path, const char *text,
			       size_t len)
{
	char reserved[PATH_MAX];
	cleanup_close int fd = -1;
	struct stat st;

	if (docker_own_path(c, RESERVED, reserved, sizeof(reserved)))
		return -ENAMETOOLONG;
	fd = open(reserved, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size != (off_t)len)
		return -EINVAL;
	if (pwrite(fd, text, len, 0) != (ssize_t)len || fsync(fd) || rename(reserved, path))
		return -errno;
	return zns_sync_parent(path);
}

int docker_resume_ended(const struct docker_container *c, const char *name,
			const struct docker_frozen *when)
{
	char path[PATH_MAX], text[300];
	int n;

	if (!is_kept(c) || !docker_good_word(name))
		return -EINVAL;
	/* Forget the times of the last resumes: a run that ended with a checkpoint is no crash
	 * (docker_resume_loops()). */
	unlink_own(c, DOCKER_LIVES_FILE);
	if (docker_own_path(c, DOCKER_ENDED_FILE, path, sizeof(path)))
		return -ENAMETOOLONG;
	n = ended_text(name, when, text, sizeof(text));
	if (!write_over_reserved(c, path, text, (size_t)n))
		return 0;
	docker_resume_unreserve(c);
	return zns_replace_file(AT_FDCWD, path, text, (size_t)n, 0600);
}

int docker_resume_used_by(const struct docker_container *c)
{
	static const char *const files[] = { DOCKER_ENDED_FILE, DOCKER_RESUME_FILE,
					     DOCKER_SIGNAL_FILE };
	char path[PATH_MAX];
	int ret = 0, one;

	for (size_t i = 0; is_kept(c) && i < ZNS_ARRAY_SIZE(files); i++) {
		if (docker_own_path(c, files[i], path, sizeof(path)))
			return -ENAMETOOLONG;
		one = unlink(path) ? -errno : zns_sync_parent(path);
		if (one && one != -ENOENT && one != -ENOTDIR && !ret)
			ret = one;
	}
	return ret;
}

int docker_resume_used(const char *root, const char *id)
{
	struct docker_container c = { .kind = "docker" };

	root = root ? root : DOCKER_DEFAULT_ROOT;
	if (!docker_full_id(id))
		return 0;
	if (strlen(root) >= sizeof(c.root))
		return -ENAMETOOLONG;
	strcpy(c.root, root);
	strcpy(c.id, id);
	return docker_resume_used_by(&c);
}

int docker_resume_ask(const struct docker_container *c, const char *name, char *out, size_t len,
		      struct zns_err *err)
{
	char path[PATH_MAX];
	struct docker_frozen when;
	int ret = 0;

	if (name && !docker_good_word(name))
		return zns_fail(err, -EINVAL, "\"%.60s\" cannot be a checkpoint's name", name);
	if (name)
		snprintf(out, len, "%s", name);
	else
		ret = read_ended(c, out, len, &when, err);
	if (ret == -ENOENT)
		return zns_fail(
			err, ret,
			"container %s did not end with a checkpoint, or was started since: name a "
			"checkpoint of it, whose memory may be older than its files",
			c->name);
	if (ret)
		return ret;
	name = name ? name : "ended";
	if (docker_own_path(c, DOCKER_RESUME_FILE, path, sizeof(path)))
		return zns_fail(err, -ENAMETOOLONG, "%s: the path is too long", c->root);
	ret = zns_replace_file(AT_FDCWD, path, name, strlen(name), 0600);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

int docker_stop_by_signal(const struct docker_container *c)
{
	return write_own(c, DOCKER_SIGNAL_FILE, "", 0);
}

bool docker_stops_by_signal(const struct docker_container *c)
{
	return !unlink_own(c, DOCKER_SIGNAL_FILE);
}

void docker_resume_refused(const struct docker_container *c)
{
	if (is_kept(c))
		unlink_own(c, DOCKER_RESUME_FILE);
}

static void read_lives(const struct docker_container *c, long long *last, long long *before)
{
	cleanup_free uint8_t *text = NULL;
	size_t n;

	*last = *before = 0;
	if (!docker_read_kept(c, DOCKER_LIVES_FILE, &text, &n, NULL))
		sscanf((char *)text, "%lld %lld", last, before);
}

void docker_resume_began(const struct docker_container *c, int64_t now_s)
{
	long long last, before;
	char text[64];

	read_lives(c, &last, &before);
	snprintf(text, sizeof(text), "%lld %lld\n", (long long)now_s, last);
	write_own(c, DOCKER_LIVES_FILE, text, strlen(text));
}

bool docker_resume_loops(const struct docker_container *c, int64_t now_s)
{
	long long last, before;

	read_lives(c, &last, &before);
	/* times of an earlier boot may be later than @now_s */
	if (!before || before > last || last > now_s || last - before >= SHORT_S ||
	    now_s - last >= SHORT_S)
		return false;
	unlink_own(c, DOCKER_LIVES_FILE);
	return true;
}

void docker_note(const struct docker_container *c, int priority, const char *fmt, ...)
{
	char line[ZNS_ERR_MAX + 400];
	struct zns_journal j;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++) /* messages of runc may have several lines */
		if ((unsigned char)*p < ' ')
			*p = ' ';
	zns_journal_begin(&j, "zns-runc", priority, line);
	zns_journal_text(&j, "ZNS_CONTAINER", c->name);
	zns_journal_send(&j);
	n = (int)zns_min((size_t)n, sizeof(line) - 2);
	strcpy(line + n, "\n");
	if (is_kept(c))
		write_own(c, DOCKER_NOTE_FILE, line, strlen(line));
}

void docker_note_lost(const struct docker_container *c)
{
	static const char *const over[] = { "resumed from ", "stopped with " };
	cleanup_free uint8_t *text = NULL;
	size_t n;
	int ret = docker_read_kept(c, DOCKER_NOTE_FILE, &text, &n, NULL);
	bool lost = ret == -ENOENT; /* -ENOENT: this is its first run */

	for (size_t i = 0; !ret && i < ZNS_ARRAY_SIZE(over); i++)
		lost |= !strncmp((char *)text, over[i], strlen(over[i]));
	if (lost)
		docker_note(c, LOG_WARNING, "started cold: it did not end with a checkpoint");
}

int docker_shape_write(const char *dir, const char *bundle, bool cri)
{
	/* leave these out: they may contain secrets, and docker_compare() does not need them */
	static const char *const others[] = { "annotations", "hooks", "hostname" };
	struct json_object *o, *process;
	char path[PATH_MAX];
	const char *text;
	int ret;

	if ((size_t)snprintf(path, sizeof(path), "%s/config.json", bundle) >= sizeof(path))
		return -ENAMETOOLONG;
	ret = zns_json_read(path, &o, NULL);
	if (ret)
		return ret;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(others); i++)
		json_object_object_del(o, others[i]);
	docker_mark_namespaces(o);
	process = zns_json_get(o, "process");
	if (process && json_object_is_type(process, json_type_object)) {
		json_object_object_del(process, "env");
		if (!cri)
			json_object_object_del(process, "args");
	}
	if (cri)
		json_object_object_add(o, DOCKER_SHAPE_LAYERS, docker_layers(o, bundle));
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	ret = (size_t)snprintf(path, sizeof(path), "%s/" DOCKER_SHAPE_FILE, dir) >= sizeof(path) ?
		      -ENAMETOOLONG :
		      zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600);
	json_object_put(o);
	return ret;
}
