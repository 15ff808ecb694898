// SPDX-License-Identifier: GPL-2.0-only
/* What a container is: its OCI bundle, and Docker's own files beside it. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

#define JSON_MAX MIB(8)
#define CRI_NAME_MAX 200	/* bytes; the broker takes no longer ones */

int docker_json_read(const char *path, struct json_object **out, struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	struct json_tokener *tok;
	enum json_tokener_error jerr;
	size_t len, end;
	int ret;

	*out = NULL;
	ret = zns_read_file(AT_FDCWD, path, JSON_MAX, &text, &len);
	if (ret)
		return zns_fail_sys(err, ret, "%s", path);
	tok = json_tokener_new();
	if (!tok)
		return zns_fail(err, -ENOMEM, "no memory to read %s", path);
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
	*out = json_tokener_parse_ex(tok, (char *)text, (int)len + 1);	/* the NUL ends a bare value */
	jerr = json_tokener_get_error(tok);
	end = json_tokener_get_parse_end(tok);
	json_tokener_free(tok);
	while (end < len && strchr(" \t\r\n", text[end]))
		end++;
	if (jerr == json_tokener_success && end >= len)
		return 0;
	json_object_put(*out);
	*out = NULL;
	return zns_fail(err, -EBADMSG, "%s is not valid JSON (%s, at byte %zu): correct it first", path,
			jerr == json_tokener_success ? "text after its end" : json_tokener_error_desc(jerr), end);
}

struct json_object *docker_json_get(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return o && json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

const char *docker_json_str(struct json_object *o, const char *key)
{
	struct json_object *v = docker_json_get(o, key);

	return v && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

static void copy(char *out, size_t len, const char *s)
{
	snprintf(out, len, "%s", s ? s : "");
}

/* dockerd binds resolv.conf, hostname and hosts from <root>/containers/<id>; a shared network names another's id. */
static bool find_root(struct docker_container *c)
{
	struct json_object *mounts = docker_json_get(c->spec, "mounts");
	size_t i, n = mounts && json_object_is_type(mounts, json_type_array) ? json_object_array_length(mounts) : 0;
	const char *src, *p;

	for (i = 0; i < n; i++) {
		src = docker_json_str(json_object_array_get_idx(mounts, i), "source");
		p = src ? strstr(src, "/containers/") : NULL;
		if (!p || p == src || (size_t)(p - src) >= sizeof(c->root) ||
		    strspn(p + 12, "0123456789abcdef") != DOCKER_ID_LEN)
			continue;
		snprintf(c->root, sizeof(c->root), "%.*s", (int)(p - src), src);
		return true;
	}
	/* --network host with no files of its own: the root file system is below the data root too */
	src = docker_json_str(docker_json_get(c->spec, "root"), "path");
	p = src ? strstr(src, "/overlay2/") : NULL;
	if (p && p != src)
		snprintf(c->root, sizeof(c->root), "%.*s", (int)(p - src), src);
	return p && p != src;
}

static int read_config(struct docker_container *c, struct zns_err *err)
{
	char path[PATH_MAX + 192];
	struct json_object *conf;
	const char *name;
	int ret;

	snprintf(path, sizeof(path), "%s/containers/%s/config.v2.json", c->root, c->id);
	ret = docker_json_read(path, &c->config, err);
	if (ret)
		return ret;
	conf = docker_json_get(c->config, "Config");
	copy(c->kind, sizeof(c->kind), "docker");
	name = docker_json_str(c->config, "Name");
	if (name && *name)
		copy(c->name, sizeof(c->name), *name == '/' ? name + 1 : name);
	copy(c->image, sizeof(c->image), docker_json_str(conf, "Image"));
	c->labels = docker_json_get(conf, "Labels");
	if (!c->env)
		c->env = docker_json_get(conf, "Env");
	return 0;
}

static bool good_id(const char *id)
{
	return *id && *id != '.' && !strchr(id, '/') && strlen(id) < sizeof(((struct docker_container *)0)->id);
}

/* conmon, the parent of a Podman container's first process, was told its name: "-n NAME". */
static void podman_name(struct docker_container *c, int init_pid)
{
	cleanup_free uint8_t *stat_text = NULL, *args = NULL;
	char path[64], *p;
	size_t len;
	int parent;

	snprintf(path, sizeof(path), "/proc/%d/stat", init_pid);
	if (init_pid <= 0 || zns_read_file(AT_FDCWD, path, 4096, &stat_text, &len))
		return;
	p = strrchr((char *)stat_text, ')');
	if (!p || sscanf(p, ") %*c %d", &parent) != 1)
		return;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", parent);
	if (zns_read_file(AT_FDCWD, path, 65536, &args, &len))
		return;
	for (p = (char *)args; p < (char *)args + len; p += strlen(p) + 1)
		if (!strcmp(p, "-n") && p + 3 < (char *)args + len && p[3])
			copy(c->name, sizeof(c->name), p + 3);
}

void docker_container_podman(struct docker_container *c, int init_pid)
{
	const char *manager = docker_json_str(c->annotations, "io.container.manager");

	if (strcmp(c->kind, "runc") || !manager || strcmp(manager, "libpod"))
		return;
	copy(c->kind, sizeof(c->kind), "podman");
	podman_name(c, init_pid);
}

/*
 * containerd's CRI plugin and CRI-O say in annotations whose container it is. The name is NAMESPACE/POD/CONTAINER, so that
 * a pod's next container of that name continues its reservation.
 */
static void cri_container(struct docker_container *c)
{
	static const struct {
		const char *type, *ns, *pod, *name, *image;
	} cri[] = {
		{ "io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-namespace",
		  "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name", "io.kubernetes.cri.image-name" },
		{ "io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri-o.Namespace", "io.kubernetes.cri-o.KubeName",
		  "io.kubernetes.cri-o.ContainerName", "io.kubernetes.cri-o.ImageName" },
	};
	const char *ns, *pod, *name;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(cri); i++) {
		if (!docker_json_str(c->annotations, cri[i].type))
			continue;
		copy(c->kind, sizeof(c->kind), "cri");
		copy(c->image, sizeof(c->image), docker_json_str(c->annotations, cri[i].image));
		ns = docker_json_str(c->annotations, cri[i].ns);
		pod = docker_json_str(c->annotations, cri[i].pod);
		name = docker_json_str(c->annotations, cri[i].name);
		/* too long a name would be cut and could be another's: then the id stays */
		if (ns && pod && name && strlen(ns) + strlen(pod) + strlen(name) + 2 <= CRI_NAME_MAX)
			snprintf(c->name, sizeof(c->name), "%s/%s/%s", ns, pod, name);
		return;
	}
}

int docker_container_read(const char *bundle, const char *id, struct docker_container *c, struct zns_err *err)
{
	struct zns_err ignored = ZNS_ERR_INIT;
	char path[PATH_MAX];
	int ret;

	memset(c, 0, sizeof(*c));
	if (!good_id(id) || (size_t)snprintf(path, sizeof(path), "%s/config.json", bundle) >= sizeof(path))
		return zns_fail(err, -EINVAL, "impossible container id or bundle path");
	copy(c->kind, sizeof(c->kind), "runc");
	copy(c->id, sizeof(c->id), id);
	copy(c->name, sizeof(c->name), id);
	ret = docker_json_read(path, &c->spec, err);
	if (ret)
		return ret;
	c->annotations = docker_json_get(c->spec, "annotations");
	c->env = docker_json_get(docker_json_get(c->spec, "process"), "env");
	/* Not Docker's, or not as we know it: what the bundle says is enough. */
	if (!find_root(c) || read_config(c, &ignored))
		c->root[0] = 0;
	if (!strcmp(c->kind, "runc"))
		cri_container(c);
	return 0;
}

int docker_container_read_root(const char *root, const char *id, struct docker_container *c, struct zns_err *err)
{
	struct json_object *host = NULL;
	char path[PATH_MAX + 192];
	int ret;

	memset(c, 0, sizeof(*c));
	if (!good_id(id))
		return zns_fail(err, -EINVAL, "impossible container id");
	copy(c->id, sizeof(c->id), id);
	copy(c->name, sizeof(c->name), id);
	copy(c->root, sizeof(c->root), root);
	ret = read_config(c, err);
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/containers/%s/hostconfig.json", root, id);
	if (!docker_json_read(path, &host, NULL)) {
		c->spec = host;
		c->annotations = docker_json_get(host, "Annotations");
	}
	return 0;
}

void docker_container_fini(struct docker_container *c)
{
	json_object_put(c->spec);
	json_object_put(c->config);
	memset(c, 0, sizeof(*c));
}

static bool empty_dir(int at, const char *name, int64_t *mtime_ns)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *e;
	struct stat st;
	bool empty = true;
	DIR *d;

	if (fd < 0)
		return false;
	d = fstat(fd, &st) ? NULL : fdopendir(fd);
	if (!d) {
		close(fd);
		return false;
	}
	*mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	while (empty && (e = readdir(d)))
		empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return empty;
}

void docker_pending_checkpoint(const struct docker_container *c, char *out, size_t len)
{
	char path[PATH_MAX + 192];
	int64_t newest = 0, t;
	struct dirent *e;
	DIR *d;

	*out = 0;
	if (!c->root[0])
		return;
	snprintf(path, sizeof(path), "%s/containers/%s/checkpoints", c->root, c->id);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.' || !empty_dir(dirfd(d), e->d_name, &t) || t < newest)
			continue;
		newest = t;
		snprintf(out, len, "%s", e->d_name);
	}
	if (d)
		closedir(d);
}
