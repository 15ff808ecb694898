/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Was a file of the container written since its dump? Its memory fits only the files as they were
 * then. Change times (ctime) tell, since only the kernel sets them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "docker.h"

#define FILES_MAX 1000000 /* most files that are checked */
#define DEPTH_MAX 200 /* most levels of directories, each of which needs an open descriptor */
#define NOW_MAX 200
/* ms; after its limit, the checking process has this long to report that the limit is over */
#define GRACE_MS 1000

/*
 * The check of a directory tree. The container writes to these directories, and others that share a
 * volume may do so at this moment. So each name is opened relative to its open directory, and no
 * link is followed.
 */
struct look {
	const char *top; /* path on the host, of a volume or of the container's own files */
	const char *inside; /* the same directory's path in the container */
	bool crosses; /* also check file systems that are mounted below it */
	bool chowned; /* ignore a change of the root's owner: Podman sets it at each start */
	dev_t dev;
	unsigned int depth;
	/* names of the directories from the top down to the present one */
	const char *names[DEPTH_MAX];
	/* when the container was frozen; NULL: any file is an error, except mount points */
	const struct docker_frozen *frozen;
	/*
	 * The container's mounts. Their mount points are ignored: a restore creates them, and may
	 * fail after that.
	 */
	struct json_object *mounts;
	size_t left;
	uint64_t until_ns; /* ns of CLOCK_MONOTONIC */
	uint32_t limit_ms;
	/* where the check is at present, for the waiting process: NOW_MAX bytes of shared memory */
	char *now;
	struct zns_err *err;
};

/* Text for an error: the path of the tree, and @name in it. @name "": the tree itself. */
static const char *place(const struct look *l, const char *name, char *out, size_t len)
{
	char top[200], what[80];

	snprintf(out, len, "%s%s%s", zns_escape(l->top, top, sizeof(top)), *name ? ": " : "",
		 zns_escape(name, what, sizeof(what)));
	return out;
}

static int unreadable(const struct look *l, int ret, const char *name)
{
	char text[300];

	return zns_fail_sys(l->err, ret, "cannot read %s", place(l, name, text, sizeof(text)));
}

/*
 * Is the change time of @name to be ignored? criu makes and removes a directory in it while it
 * dumps mounts.
 */
static bool is_crius(const struct look *l, const char *name)
{
	if (!*name)
		return !strcmp(l->inside, "/") || !strcmp(l->inside, "/tmp");
	return l->depth == 1 && !strcmp(l->inside, "/") && !strcmp(name, "tmp");
}

/*
 * Is this a name that criu makes? With --link-remap it gives a deleted file that is open a name in
 * its directory again.
 */
static bool is_remap(const char *name)
{
	static const char remap[] = "link_remap.";
	const char *number = name + sizeof(remap) - 1;

	return !strncmp(name, remap, sizeof(remap) - 1) && *number &&
	       !number[strspn(number, "0123456789")];
}

static bool has_remap(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	bool found = false;
	struct dirent *e;

	while (d && !found && (e = readdir(d)))
		found = is_remap(e->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return found;
}

static int64_t changed_ns(const struct stat *st)
{
	return st->st_ctim.tv_sec * 1000000000ll + st->st_ctim.tv_nsec;
}

static int written(const struct look *l, const char *name)
{
	char text[300];

	return zns_fail(l->err, -EEXIST, "%s was written after its checkpoint",
			place(l, name, text, sizeof(text)));
}

static int check_file(const struct look *l, const struct stat *st, const char *name)
{
	int64_t since_ns = is_remap(name) ? l->frozen->dumped_ns : l->frozen->at_ns;

	return changed_ns(st) > since_ns ? written(l, name) : 0;
}

static int check_directory(const struct look *l, int fd, const char *name)
{
	struct stat st;
	int64_t ns;

	if (fstat(fd, &st))
		return unreadable(l, -errno, name);
	ns = l->chowned && !*name && !strcmp(l->inside, "/") ?
		     st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec :
		     changed_ns(&st);
	if (ns <= l->frozen->at_ns ||
	    (ns <= l->frozen->dumped_ns && (is_crius(l, name) || has_remap(fd))))
		return 0;
	return written(l, name);
}

/*
 * Is this entry of a type without contents, which cannot be written? Known only if the file system
 * reports types.
 */
static bool has_none(const struct dirent *e)
{
	return e->d_type != DT_REG && e->d_type != DT_DIR && e->d_type != DT_UNKNOWN;
}

/* Is there time for another file? A cold start is better than an engine that waits for a disk. */
static int may_look(struct look *l)
{
	if (!l->left--)
		return zns_fail(l->err, -E2BIG, "the container has more than %u files to check",
				FILES_MAX);
	if (zns_mono_ns() < l->until_ns)
		return 0;
	return zns_fail(
		l->err, -ETIMEDOUT,
		"checking whether the container's files were written takes more than %u ms (%zu were checked)",
		l->limit_ms, FILES_MAX - l->left - 1);
}

static int not_its_images(const struct look *l, const char *name)
{
	char text[300];

	return zns_fail(
		l->err, -EEXIST,
		"zns.from: %s is not a file of the container's image (did `docker cp` put it there?)",
		place(l, name, text, sizeof(text)));
}

/* Is @name, in the directory that is being read, the path @to of the container? */
static bool is_place(const struct look *l, const char *name, const char *to)
{
	for (unsigned int i = 1; i <= l->depth; i++) {
		const char *part = i < l->depth ? l->names[i] : name;
		size_t n = strlen(part);

		if (*to++ != '/' || strncmp(to, part, n))
			return false;
		to += n;
	}
	return !*to;
}

/* Is this file hidden from the container, because something is mounted on it? */
static bool is_mount_point(const struct look *l, const struct dirent *e)
{
	bool found = false;

	for (size_t i = 0; e->d_type == DT_REG && !found && i < zns_json_len(l->mounts); i++) {
		const char *to = zns_json_str(json_object_array_get_idx(l->mounts, i),
					      "destination");

		found = to && is_place(l, e->d_name, to);
	}
	return found;
}

/* Checks all entries of the directory @fd, and closes it. */
static int directory(struct look *l, int fd, const char *name)
{
	DIR *d = l->depth < DEPTH_MAX ? fdopendir(fd) : NULL;
	struct dirent *e;
	struct stat st;
	int ret = 0, sub;

	if (!d) {
		ret = l->depth < DEPTH_MAX ? -errno : -ELOOP;
		close(fd);
		return unreadable(l, ret, name);
	}
	if (l->frozen)
		ret = check_directory(l, fd, name);
	l->names[l->depth++] = name;
	while (!ret && (errno = 0, e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (!l->frozen && e->d_type != DT_DIR) {
			if (is_mount_point(l, e))
				continue;
			ret = not_its_images(l, e->d_name);
			break;
		}
		if (has_none(e))
			continue;
		ret = may_look(l);
		if (ret)
			break;
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) {
			ret = unreadable(l, -errno, e->d_name);
			break;
		}
		if (st.st_dev != l->dev && !l->crosses)
			continue;
		if (S_ISREG(st.st_mode))
			ret = check_file(l, &st, e->d_name);
		if (!S_ISDIR(st.st_mode)) /* sockets, devices and links have no contents */
			continue;
		sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		ret = sub < 0 ? unreadable(l, -errno, e->d_name) : directory(l, sub, e->d_name);
	}
	if (!ret && errno)
		ret = unreadable(l, -errno, name);
	closedir(d);
	l->depth--;
	return ret;
}

static int tree(struct look *l, const char *top, const char *inside, bool crosses)
{
	struct stat st;
	int fd;

	snprintf(l->now, NOW_MAX, "%s", top);
	l->top = top;
	l->inside = inside ? inside : "";
	l->crosses = crosses;
	if (stat(top, &st))
		return unreadable(l, -errno, "");
	l->dev = st.st_dev;
	if (!S_ISDIR(st.st_mode))
		return S_ISREG(st.st_mode) ? check_file(l, &st, "") : 0;
	fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? unreadable(l, -errno, "") : directory(l, fd, "");
}

static bool has_option(struct json_object *mount, const char *option)
{
	struct json_object *all = zns_json_get(mount, "options");
	const char *o;

	for (size_t i = 0; i < zns_json_len(all); i++) {
		o = json_object_get_string(json_object_array_get_idx(all, i));
		if (o && !strcmp(o, option))
			return true;
	}
	return false;
}

static bool is_writable(struct json_object *mount)
{
	const char *type = zns_json_str(mount, "type");

	/* Docker 25 and later write "rro" for the same option */
	return type && !strcmp(type, "bind") && !has_option(mount, "ro") &&
	       !has_option(mount, "rro");
}

/*
 * Returns the part behind userdata/ in a path of Podman, which has such directories below its root
 * and below its run directory. NULL: it is no such path.
 */
static const char *in_userdata(const char *from)
{
	static const char above[] = "-containers/", below[] = "/userdata/";
	const char *id = strstr(from, above);
	char text[DOCKER_ID_LEN + 1];

	if (!id)
		return NULL;
	id += strlen(above);
	snprintf(text, sizeof(text), "%s", id);
	if (!docker_full_id(text) || strncmp(id + DOCKER_ID_LEN, below, strlen(below)))
		return NULL;
	return id + DOCKER_ID_LEN + strlen(below);
}

/* Is it one of the files that Podman creates anew for each start? */
static bool is_podmans(const char *from)
{
	static const char *const made[] = {
		"hosts", "hostname", "resolv.conf", ".containerenv", "secrets", "run/secrets", "shm"
	};
	const char *name = in_userdata(from);
	size_t n;

	for (size_t i = 0; name && i < ZNS_ARRAY_SIZE(made); i++) {
		n = strlen(made[i]);
		if (!strncmp(name, made[i], n) && (!name[n] || name[n] == '/'))
			return true;
	}
	return false;
}

static bool is_dropped(struct json_object *mount)
{
	const char *type = zns_json_str(mount, "type"), *from = zns_json_str(mount, "source"),
		   *name = from ? in_userdata(from) : NULL;
	int64_t at_ns;

	if (type && !strcmp(type, "overlay")) /* a volume with option O */
		return true;
	return name && (!strncmp(name, "overlay/", strlen("overlay/")) ||
			(!strcmp(name, "shm") && !docker_empty_dir(AT_FDCWD, from, &at_ns)));
}

const char *docker_podman_drops(struct json_object *spec)
{
	struct json_object *mounts = zns_json_get(spec, "mounts"), *m;
	const char *to;

	for (size_t i = 0; i < zns_json_len(mounts); i++) {
		m = json_object_array_get_idx(mounts, i);
		to = zns_json_str(m, "destination");
		if (is_dropped(m))
			return to ? to : "a mount";
	}
	return NULL;
}

static bool keeps_podman(const char *own)
{
	return !strcmp(strrchr(own, '/'), "/userdata");
}

/*
 * Is it a file that a kubelet and its CRI mount into each container? A volume that a pod mounts
 * there itself is taken for such a file.
 */
static bool is_cris(struct json_object *mount)
{
	static const char *const made[] = { "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
					    "/dev/shm", "/dev/termination-log" };
	const char *to = zns_json_str(mount, "destination");

	for (size_t i = 0; to && i < ZNS_ARRAY_SIZE(made); i++)
		if (!strcmp(to, made[i]))
			return true;
	return false;
}

/*
 * Is it a file that the engine keeps, such as hosts or resolv.conf, for this container or for the
 * one whose network it shares?
 */
static bool is_engines(struct json_object *mount, const char *from, const char *own)
{
	if (!*own)
		return is_cris(mount);
	return keeps_podman(own) ? is_podmans(from) :
				   !strncmp(from, own, (size_t)(strrchr(own, '/') + 1 - own));
}

/*
 * Returns the next writable volume at or after mount *@at, and its source. NULL: there are no more.
 */
static struct json_object *next_volume(struct json_object *spec, const char *own, size_t *at,
				       const char **from)
{
	struct json_object *mounts = zns_json_get(spec, "mounts"), *m;

	while (*at < zns_json_len(mounts)) {
		m = json_object_array_get_idx(mounts, (*at)++);
		*from = zns_json_str(m, "source");
		if (is_writable(m) && *from && **from == '/' && !is_engines(m, *from, own))
			return m;
	}
	return NULL;
}

int docker_has_volumes(struct json_object *spec, const char *own, struct zns_err *err)
{
	const char *from;
	char what[200];
	size_t at = 0;

	if (!next_volume(spec, own, &at, &from))
		return 0;
	return zns_fail(
		err, -EEXIST,
		"zns.from: what is in the volume %s may be newer than that memory: mount it read-only",
		zns_escape(from, what, sizeof(what)));
}

int docker_has_files(struct json_object *spec, struct zns_err *err)
{
	const char *root = zns_json_str(zns_json_get(spec, "root"), "path");
	char upper[PATH_MAX] = "", now[NOW_MAX];
	struct look l = { .left = FILES_MAX,
			  .until_ns = UINT64_MAX,
			  .mounts = zns_json_get(spec, "mounts"),
			  .now = now,
			  .err = err };
	int ret = root && *root == '/' ? docker_upper(root, upper, sizeof(upper)) : -EINVAL;

	if (ret)
		return zns_fail_sys(err, ret, "cannot find the mount of its root");
	if (!*upper)
		return zns_fail(
			err, -EOPNOTSUPP,
			"zns.from: the container's root is not an overlay, so its files cannot be compared with those of its image");
	return tree(&l, upper, "/", false);
}

static int look(struct json_object *spec, const char *own, struct look *l)
{
	const char *root = zns_json_str(zns_json_get(spec, "root"), "path"), *from;
	struct json_object *m;
	char upper[PATH_MAX];
	size_t at = 0;
	int ret;

	if (!root || *root != '/')
		return zns_fail(l->err, -EINVAL, "its config.json names no root");
	ret = docker_upper(root, upper, sizeof(upper));
	if (ret)
		return zns_fail_sys(l->err, ret, "cannot find the mount at %s", root);
	l->chowned = keeps_podman(own);
	ret = tree(l, *upper ? upper : root, "/", false);
	while (!ret && (m = next_volume(spec, own, &at, &from)))
		ret = tree(l, from, zns_json_str(m, "destination"), has_option(m, "rbind"));
	l->top = NULL;
	return ret;
}

/* Shared memory, in which the checking process reports to the waiting one. */
struct report {
	bool done;
	int ret;
	struct zns_err err;
	char now[NOW_MAX];
};

/*
 * The checking process. It may hang as long as a file server does not respond, so it keeps nothing
 * open that others need.
 */
static void __attribute__((noreturn))
look_alone(struct json_object *spec, const char *own, struct look *l, struct report *r)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	close_range(3, ~0u, 0);
	if (chdir("/"))
		_exit(1);
	r->ret = look(spec, own, l);
	r->done = true;
	_exit(0);
}

int docker_written_since(struct json_object *spec, const char *own,
			 const struct docker_frozen *frozen, uint32_t limit_ms, struct zns_err *err)
{
	struct report *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct look l = { .frozen = frozen,
			  .left = FILES_MAX,
			  .limit_ms = limit_ms,
			  .until_ns = zns_mono_ns() + limit_ms * 1000000ull };
	struct pollfd p = { .events = POLLIN };
	char what[NOW_MAX];
	int ret;
	pid_t pid;

	if (r == MAP_FAILED)
		return zns_fail(err, -ENOMEM, "no memory to check the container's files");
	l.err = &r->err;
	l.now = r->now;
	pid = fork();
	if (!pid)
		look_alone(spec, own, &l, r);
	p.fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	ret = p.fd < 0 ? -errno : 0;
	if (!ret && poll(&p, 1, (int)(limit_ms + GRACE_MS)) == 1) {
		waitpid(pid, NULL, 0);
		ret = r->done ? r->ret : -EIO;
		if (err && ret)
			*err = r->err;
		if (!r->done)
			zns_fail(err, ret, "the check of the container's files ended too early");
	} else if (ret) {
		zns_fail_sys(err, ret, "cannot start a process that checks the container's files");
		/*
		 * kill it without waiting: it cannot die while the kernel waits for a file server
		 */
	} else {
		kill(pid, SIGKILL);
		ret = zns_fail(
			err, -ETIMEDOUT,
			"checking whether the container's files were written takes more than %u ms: %s does not answer",
			limit_ms, zns_escape(r->now, what, sizeof(what)));
	}
	if (p.fd >= 0)
		close(p.fd);
	munmap(r, sizeof(*r));
	return ret;
}
