/* SPDX-License-Identifier: GPL-2.0-only */
/* Describes a container, from its OCI bundle and Docker's own files. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"
#include "zns/config.h"
#include "zns/process.h"

/*
 * Copies a value. One that is too long becomes "", since its beginning may be another container's
 * name.
 */
static void copy(char *out, size_t len, const char *s)
{
	snprintf(out, len, "%s", s && strlen(s) < len ? s : "");
}

/*
 * Copies a text that the container's creator chose. One that is too long is left out, since a part
 * of it would mislead.
 */
static void copy_text(char *out, size_t len, const char *s)
{
	const char *p = s ? s : "";
	int n;

	for (; *p; p += n) {
		n = zns_printable(p);
		if (!n || *p == '"' || *p == '\\')
			break;
	}
	copy(out, len, *p ? NULL : s);
}

/* Reads a file that dockerd has written for a container. -ENOENT: there is none. */
static int read_own(const char *root, const char *id, const char *name, struct json_object **out,
		    struct zns_err *err)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX + 192];
	size_t len;
	int ret = docker_read_own(root, id, name, &text, &len, err);

	*out = NULL;
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "%s/containers/%s/%s", root, id, name);
	return zns_json_parse(path, text, len, out, err);
}

static int read_config(struct docker_container *c, const char *root, struct zns_err *err)
{
	struct json_object *conf;
	const char *name, *id;
	int ret;

	if (!docker_full_id(c->id) || strlen(root) >= sizeof(c->root))
		return zns_fail(err, -ENOENT, "container %.80s does not belong to Docker", c->id);
	ret = read_own(root, c->id, "config.v2.json", &c->config, err);
	if (ret)
		return ret;
	id = zns_json_str(c->config, "ID");
	if (!id || strcmp(id, c->id))
		return zns_fail(
			err, -EPERM,
			"%s/containers/%s/config.v2.json describes another container, so it was not used",
			root, c->id);
	conf = zns_json_get(c->config, "Config");
	copy(c->kind, sizeof(c->kind), "docker");
	copy(c->root, sizeof(c->root), root);
	name = zns_json_str(c->config, "Name");
	if (name && *name == '/')
		name++;
	/*
	 * Use the id if the name is too long, or looks like an id, which could be that of another
	 * container.
	 */
	if (name && *name && !docker_full_id(name) && strlen(name) <= ZNS_NAME_MAX) {
		if (!docker_good_word(name))
			return zns_fail(
				err, -EINVAL,
				"the name of container %.12s in Docker's files is not one that Docker allows",
				c->id);
		copy(c->name, sizeof(c->name), name);
	}
	copy_text(c->image, sizeof(c->image), zns_json_str(conf, "Image"));
	c->labels = zns_json_get(conf, "Labels");
	if (!c->env)
		c->env = zns_json_get(conf, "Env");
	return 0;
}

/*
 * conmon is the parent of a Podman container's first process. Its arguments have the id and the
 * name: "-c ID … -n NAME". Docker's names have no slash and Kubernetes' names have two, so names of
 * different engines never clash.
 */
static void podman_name(struct docker_container *c, int init_pid)
{
	cleanup_free uint8_t *args = NULL;
	char path[64], *p, *next;
	bool ours = false;
	size_t len;
	int parent = init_pid > 0 ? (int)zns_process_stat(init_pid, ZNS_PROCESS_PARENT) : 0;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", parent);
	if (zns_read_file(AT_FDCWD, path, 65536, &args, &len))
		return;
	for (p = (char *)args; p < (char *)args + len; p = next) {
		next = p + strlen(p) + 1;
		if (next >= (char *)args + len)
			return;
		if (!strcmp(p, "-c"))
			ours = !strcmp(next, c->id);
		if (strcmp(p, "-n"))
			continue;
		if (ours && docker_good_word(next) &&
		    strlen(next) + strlen("podman/") <= ZNS_NAME_MAX)
			snprintf(c->name, sizeof(c->name), "podman/%.200s", next);
		return; /* conmon uses only its first -n; a user may have added later ones */
	}
}

void docker_container_podman(struct docker_container *c, int init_pid)
{
	if (!strcmp(c->kind, "podman"))
		podman_name(c, init_pid);
}

/* Annotations by which a CRI names the owner of a container. */
struct cri {
	const char *type, *ns, *pod, *name, *image;
};

static const struct cri by_containerd = { "io.kubernetes.cri.container-type",
					  "io.kubernetes.cri.sandbox-namespace",
					  "io.kubernetes.cri.sandbox-name",
					  "io.kubernetes.cri.container-name",
					  "io.kubernetes.cri.image-name" };
static const struct cri by_crio = { "io.kubernetes.cri-o.ContainerType",
				    "io.kubernetes.cri-o.Namespace", "io.kubernetes.cri-o.KubeName",
				    "io.kubernetes.cri-o.ContainerName",
				    "io.kubernetes.cri-o.ImageName" };

/*
 * Makes the name NAMESPACE/POD/CONTAINER. It has no id, so that the pod's next container of this
 * name keeps the reservation.
 */
static int cri_name(struct docker_container *c, const struct cri *cri, struct zns_err *err)
{
	const char *const key[] = { cri->ns, cri->pod, cri->name };
	const char *v[3];
	size_t len = 2;

	for (int i = 0; i < 3; i++) {
		v[i] = zns_json_str(c->annotations, key[i]);
		if (!v[i])
			return 0; /* a sandbox, or a CRI that sets no names: the id is used */
		if (!docker_good_word(v[i]))
			return zns_fail(
				err, -EINVAL,
				"annotation %s is not a valid name in Kubernetes: letters, digits, _ . -",
				key[i]);
		len += strlen(v[i]);
	}
	/* use the id: a shortened name could be another container's */
	if (len <= ZNS_NAME_MAX)
		snprintf(c->name, sizeof(c->name), "%s/%s/%s", v[0], v[1], v[2]);
	return 0;
}

/*
 * Can names from CRI-O be trusted? CRI-O lets a pod's annotations and labels replace its own,
 * unless it is configured otherwise.
 */
static int crio_names(bool *yes, struct zns_err *err)
{
	char value[8];
	int ret = zns_config_get("cri-o-names", value, sizeof(value), err);

	*yes = !ret && !strcmp(value, "yes");
	if (ret == -ENOENT)
		return err->code = 0;
	if (!ret && !*yes && strcmp(value, "no"))
		return zns_fail(err, -EINVAL, "cri-o-names in zns.conf: yes or no");
	return ret;
}

static int cri_container(struct docker_container *c, const char *state_root, struct zns_err *err)
{
	const char *base = state_root ? strrchr(state_root, '/') : NULL;
	const char *manager = zns_json_str(c->annotations, "io.container.manager");
	/*
	 * containerd itself chooses this directory for containers of its CRI. Annotations alone
	 * prove nothing, since any user can set them.
	 */
	const struct cri *cri = base && !strcmp(base, "/k8s.io") ? &by_containerd : &by_crio;
	bool named = true;
	int ret = 0;

	if (!zns_json_str(c->annotations, cri->type) &&
	    (cri == &by_containerd || !manager || strcmp(manager, "cri-o")))
		return 0;
	copy(c->kind, sizeof(c->kind), "cri");
	copy_text(c->image, sizeof(c->image), zns_json_str(c->annotations, cri->image));
	if (cri == &by_crio)
		ret = crio_names(&named, err);
	return ret || !named ? ret : cri_name(c, cri, err);
}

bool docker_is_sandbox(const struct docker_container *c)
{
	const char *const types[] = { zns_json_str(c->annotations, by_containerd.type),
				      zns_json_str(c->annotations, by_crio.type) };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(types); i++)
		if (types[i] && !strcmp(types[i], "sandbox"))
			return true;
	return false;
}

/* Finds the container's root; in containerd's bundles its path is relative to the bundle. */
static void root_from_bundle(struct docker_container *c, const char *bundle)
{
	struct json_object *root = zns_json_get(c->spec, "root");
	const char *path = zns_json_str(root, "path");
	char top[PATH_MAX], all[PATH_MAX];

	if (path && *path != '/' && realpath(bundle, top) &&
	    (size_t)snprintf(all, sizeof(all), "%s/%s", top, path) < sizeof(all))
		json_object_object_add(root, "path", json_object_new_string(all));
}

int docker_container_read(const struct docker_runtime *rt, const char *bundle, const char *id,
			  struct docker_container *c, struct zns_err *err)
{
	char path[PATH_MAX];
	const char *manager;
	int ret;

	memset(c, 0, sizeof(*c));
	if (!docker_good_id(id) ||
	    (size_t)snprintf(path, sizeof(path), "%s/config.json", bundle) >= sizeof(path))
		return zns_fail(err, -EINVAL, "impossible container id or bundle path");
	copy(c->kind, sizeof(c->kind), "runc");
	copy(c->id, sizeof(c->id), id);
	copy(c->name, sizeof(c->name), id);
	ret = zns_json_read(path, &c->spec, err);
	if (ret)
		return ret == -EPERM ? -EACCES : ret;
	c->annotations = zns_json_get(c->spec, "annotations");
	c->env = zns_json_get(zns_json_get(c->spec, "process"), "env");
	ret = read_config(c, rt->docker_root ? rt->docker_root : DOCKER_DEFAULT_ROOT, err);
	if (ret != -ENOENT)
		return ret;
	err->code = 0;
	manager = zns_json_str(c->annotations, "io.container.manager");
	if (!manager || strcmp(manager, "libpod")) {
		root_from_bundle(c, bundle);
		return cri_container(c, rt->state_root, err);
	}
	copy(c->kind, sizeof(c->kind), "podman");
	if (podman_bundle(bundle, id))
		copy(c->bundle, sizeof(c->bundle), bundle);
	return 0;
}

int docker_container_read_root(const char *root, const char *id, struct docker_container *c,
			       struct zns_err *err)
{
	struct json_object *host = NULL;
	int ret;

	memset(c, 0, sizeof(*c));
	if (!docker_good_id(id))
		return zns_fail(err, -EINVAL, "impossible container id");
	copy(c->id, sizeof(c->id), id);
	copy(c->name, sizeof(c->name), id);
	ret = read_config(c, root, err);
	if (ret)
		return ret;
	if (!read_own(root, id, "hostconfig.json", &host, NULL)) {
		c->spec = host;
		c->annotations = zns_json_get(host, "Annotations");
	}
	return 0;
}

void docker_container_fini(struct docker_container *c)
{
	json_object_put(c->spec);
	json_object_put(c->config);
	memset(c, 0, sizeof(*c));
}

bool docker_empty_dir(int at, const char *name, int64_t *mtime_ns)
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
		if (e->d_name[0] == '.' || !docker_empty_dir(dirfd(d), e->d_name, &t) || t < newest)
			continue;
		newest = t;
		snprintf(out, len, "%s", e->d_name);
	}
	if (d)
		closedir(d);
}
