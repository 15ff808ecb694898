/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The origin of the dump or restore, that is, which program started it and for which container. The
 * runtime wrapper names it in environment variables, which criu passes on.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "../helper.h"
#include "zns-memfd.h"

#define LOG_MAX KIB(256) /* bytes, for the end of criu's log */
#define FILE_MAX KIB(256) /* bytes of a file that a runtime wrote */
/* s; a container that is frozen already must not wait for admission for long (design.md §5) */
#define FROZEN_WAIT_S 1

static int text(char **to, const char *name)
{
	const char *v = secure_getenv(name);

	if (!v || !*v)
		return 0;
	*to = strdup(v);
	return *to ? 0 : -ENOMEM;
}

int origin_fill(ZnsPb__Origin *o)
{
	char *kind = NULL;
	int ret = text(&kind, "ZNS_ORIGIN_KIND");

	if (ret || !kind)
		/* no variable is set: criu itself is the origin, which is the default */
		return ret;
	free(o->kind);
	o->kind = kind;
	ret = text(&o->container_id, "ZNS_ORIGIN_ID");
	if (!ret)
		ret = text(&o->container_name, "ZNS_ORIGIN_NAME");
	if (!ret)
		ret = text(&o->image, "ZNS_ORIGIN_IMAGE");
	if (!ret)
		ret = text(&o->root, "ZNS_ORIGIN_ROOT");
	o->has_ended = o->ended = secure_getenv("ZNS_ORIGIN_ENDED") != NULL;
	return ret ? ret : text(&o->checkpoint_name, "ZNS_ORIGIN_CHECKPOINT");
}

bool origin_ticket(uint8_t id[ZNS_UUID_LEN])
{
	const char *v = secure_getenv("ZNS_ORIGIN_TICKET");

	return v && !zns_uuid_parse(v, id);
}

static int to_memfd(int fd, size_t max, const char *name)
{
	cleanup_free uint8_t *buf = NULL;
	struct stat st;
	size_t len;
	int out;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size)
		return -1;
	len = (size_t)zns_min((uint64_t)st.st_size, max);
	buf = malloc(len);
	if (!buf || zns_pread_all(fd, buf, len, st.st_size - (off_t)len))
		return -1;
	out = zns_memfd(name);
	if (out >= 0 && zns_pwrite_all(out, buf, len, 0)) {
		close(out);
		return -1;
	}
	return out;
}

/*
 * Returns a copy of criu's log, since Docker deletes the log's directory after a successful dump.
 */
int origin_log(void)
{
	const char *path = secure_getenv("ZNS_ORIGIN_LOG");
	cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) :
				      -1;

	return to_memfd(fd, LOG_MAX, "dump.log");
}

/*
 * Returns a copy of a runtime's file: a restore needs it, and the engine may delete the directory.
 * In another user's directory the file may have been replaced, so its owner is checked.
 */
int origin_file(int dir, const char *name, const char **why)
{
	cleanup_close int fd = secure_getenv("ZNS_ORIGIN_ID") ?
				       openat(dir, name,
					      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) :
				       -1;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	if (st.st_uid != geteuid() || st.st_nlink != 1)
		*why = "another user's, or has several links";
	else if ((uint64_t)st.st_size > FILE_MAX)
		*why = "larger than 256 KiB";
	else
		return to_memfd(fd, FILE_MAX, name);
	return -1;
}

/*
 * Do both containers belong to one Kubernetes namespace? Such containers may use each other's
 * checkpoints: a CRI gives each restored container a new id, and often another pod. An imported
 * checkpoint has the name that root gave it.
 */
static bool same_namespace(const char *a, const char *b)
{
	const char *sa = strchr(a, '/'), *sb = strchr(b, '/');

	return sa && sb && strchr(sa + 1, '/') && strchr(sb + 1, '/') && sa - a == sb - b &&
	       !strncmp(a, b, (size_t)(sa - a));
}

int origin_check(const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const char *id = secure_getenv("ZNS_RESTORE_ID"), *name = secure_getenv("ZNS_RESTORE_NAME"),
		   *allow = secure_getenv("ZNS_RESTORE_ALLOW");
	const ZnsPb__Origin *o = c->origin;
	const char *of = o && o->container_id && *o->container_id ? o->container_id : NULL;
	char text[ZNS_UUID_STR];

	if (!id || !name) /* criu was started by hand: root names the checkpoint */
		return 0;
	if (of ? !strcmp(of, id) : !strcmp(c->container, name))
		return 0;
	if (same_namespace(c->container, name))
		return 0;
	zns_uuid_format(c->id.data, text);
	if (allow && (!strcmp(allow, "any") || strstr(allow, text)))
		return 0;
	return zns_fail(
		err, -EPERM,
		"checkpoint %s is of container %.100s%s%.12s, not of %.100s: `znsctl docker clone` makes a container that may restore it; restore-others = yes in zns.conf lets every container restore every checkpoint",
		text, c->container, of ? ", id " : "", of ? of : "", name);
}

const char *origin_admission(const char *asked)
{
	const char *v = secure_getenv("ZNS_ORIGIN_FROZEN");
	uint64_t s;

	if (!v || strncmp(asked, "wait", 4) ||
	    (asked[4] && zns_parse_number(asked + 5, 0, FROZEN_WAIT_S, &s) != -ERANGE))
		return asked;
	return "wait=1";
}
