/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns.from in Kubernetes. A CRI keeps no directory for a container, so the checkpoint is looked up
 * in the catalogues of this machine's stores, and a directory is made from it. Only checkpoints are
 * used that zns-runc has made on this machine for a CRI: the name of their container comes from the
 * CRI, and the description of their rights from zns-runc.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/reader.h"
#include "zns/session.h"
#include "zns/store.h"

/* file of runc; zns/helper/dump/origin.c stores this file and that of zns-runc */
#define FDS_FILE "descriptors.json"
#define FILE_MAX KIB(256)
#define LATEST "latest"

/* -ENOENT: the checkpoint has no such file. */
static int unpack_one(struct zns_reader *r, const char *name, int dir, struct zns_err *err)
{
	struct zns_rimage *i = zns_reader_find(r, name);
	cleanup_free char *text = NULL;
	uint64_t len;
	int ret;

	if (!i)
		return -ENOENT;
	len = zns_rimage_size(i);
	text = len > FILE_MAX ? NULL : malloc(len + 1);
	if (!text)
		return zns_fail(err, len > FILE_MAX ? -EFBIG : -ENOMEM, "%s has %llu bytes", name,
				(unsigned long long)len);
	ret = len ? zns_rimage_read(i, 0, text, len, err) : 0;
	if (!ret && (ret = zns_replace_file(dir, name, text, len, 0600)))
		zns_fail_sys(err, ret, "cannot write %s", name);
	return ret;
}

static int unpack_files(struct zns_session *s, const ZnsPb__Manifest *m,
			const struct zns_crypt *crypt, int dir, struct zns_err *err)
{
	const struct zns_reader_params p = { .dev = s->dev, .crypt = crypt, .workers = 1 };
	struct zns_reader *r = NULL;
	int ret = zns_reader_new(&p, m, &r, err);

	if (ret)
		return ret;
	ret = unpack_one(r, FDS_FILE, dir, err);
	if (ret == -ENOENT)
		ret = zns_fail(err, ret,
			       "runc's " FDS_FILE
			       " was not kept with it (an earlier version made it): export it, "
			       "and start it with that file by hand");
	if (!ret && (ret = unpack_one(r, DOCKER_SHAPE_FILE, dir, err)) == -ENOENT)
		/* ignore this here: docker_shape_check() refuses such a checkpoint if necessary */
		ret = 0;
	zns_reader_free(r);
	return ret;
}

int docker_unpack(struct zns_session *s, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		  const char *path, struct zns_err *err)
{
	ZnsPb__Handle h = ZNS_PB__HANDLE__INIT;
	struct zns_crypt *crypt = NULL;
	cleanup_close int dir = -1;
	struct zns_handle_seal seal;
	int ret;

	if (mkdir(path, 0700) ||
	    (dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	ret = zns_crypt_of(&s->reg, s->broker.encrypted, m, &crypt, err);
	if (crypt)
		zns_crypt_harden();
	if (!ret)
		ret = unpack_files(s, m, crypt, dir, err);
	h.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, s->reg.uuid };
	h.checkpoint = c->id;
	zns_handle_describe(&h, c);
	if (!ret)
		ret = zns_crypt_seal_handle(crypt, c, m->seal.data, &h, &seal, err);
	if (!ret)
		ret = zns_handle_write(dir, &h, err);
	zns_crypt_free(crypt);
	if (ret)
		docker_remove_dir(path);
	return ret;
}

struct found {
	struct zns_registered reg;
	uint8_t id[ZNS_UUID_LEN];
	int64_t created_ns;
	char full[sizeof(((struct docker_resume *)0)->name)]; /* the checkpoint as CONTAINER/ID */
	char image[sizeof(((struct docker_container *)0)->image)];
	bool any;
};

static bool is_of_cri(const ZnsPb__Checkpoint *k)
{
	const ZnsPb__Origin *o = k->origin;

	return o && o->kind && !strcmp(o->kind, "cri") && !o->claimed && o->image &&
	       !k->pages_only && !k->pre_dump && !k->post_copy && k->id.len == ZNS_UUID_LEN;
}

/* Notes @k if @wanted names it, a rule allows it, and it is newer than the one found so far. */
static void look_at(const ZnsPb__Checkpoint *k, const struct docker_settings *s,
		    const struct zns_registered *reg, struct found *f)
{
	const char *wanted = s->value[DOCKER_FROM];
	char id[ZNS_UUID_STR], full[sizeof(f->full)], latest[sizeof(f->full)];

	if (!is_of_cri(k))
		return;
	zns_uuid_format(k->id.data, id);
	snprintf(full, sizeof(full), "%s/%s", k->container, id);
	snprintf(latest, sizeof(latest), "%s/" LATEST, k->container);
	if ((strcmp(wanted, id) && strcmp(wanted, full) && strcmp(wanted, latest)) ||
	    !docker_from_allowed(s, full) || (f->any && k->created_ns <= f->created_ns))
		return;
	f->any = true;
	f->reg = *reg;
	f->created_ns = k->created_ns;
	memcpy(f->id, k->id.data, ZNS_UUID_LEN);
	memcpy(f->full, full, sizeof(full));
	snprintf(f->image, sizeof(f->image), "%s", k->origin->image);
}

/* Searches a store. One that does not answer is skipped: another may have the checkpoint. */
static void look_in(const struct zns_registered *reg, const struct docker_settings *s,
		    struct found *f)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	char wanted[DOCKER_SETTING_MAX], *last;
	ZnsPb__Response *ls = NULL;
	struct zns_broker b;

	if (zns_broker_connect(reg, &b, NULL))
		return;
	req.has_ls = req.ls = 1;
	snprintf(wanted, sizeof(wanted), "%s", s->value[DOCKER_FROM]);
	last = strrchr(wanted, '/');
	req.only = last ? last + 1 : wanted;
	if (last && !strcmp(req.only, LATEST)) {
		*last = 0;
		req.only = wanted;
	}
	if (!zns_broker_call(&b, &req, &ls, NULL)) {
		for (size_t i = 0; i < ls->n_checkpoints; i++)
			look_at(ls->checkpoints[i], s, reg, f);
		zns_pb__response__free_unpacked(ls, NULL);
	}
	zns_broker_close(&b);
}

static int find(const struct docker_settings *s, struct found *f, struct zns_err *err)
{
	cleanup_free struct zns_registered *reg = NULL;
	size_t nr = 0;
	int ret = zns_registered_list(&reg, &nr, err);

	for (size_t i = 0; !ret && i < nr; i++)
		look_in(&reg[i], s, f);
	if (ret || f->any)
		return ret;
	return docker_from_refused(s, err);
}

static int take(const struct found *f, const char *path, struct zns_err *err)
{
	struct zns_session s = ZNS_SESSION_INIT;
	ZnsPb__Response *answer = NULL;
	ZnsPb__Manifest *m = NULL;
	int ret = zns_session_open(&s, &f->reg, ZNS_READS, err);

	if (ret)
		return ret;
	ret = zns_session_lease(&s, f->id, false, &answer, err);
	if (!ret)
		ret = zns_manifest_read(s.dev, answer->checkpoints[0], &m, err);
	if (!ret)
		ret = docker_unpack(&s, answer->checkpoints[0], m, path, err);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	if (answer)
		zns_pb__response__free_unpacked(answer, NULL);
	zns_session_close(&s);
	return ret;
}

/* Does the container run on the layers that it ran on? @was NULL: not known. A digest in the image's
 * name says so already, and they may have been unpacked anew. */
static int same_layers(const struct docker_container *c, const struct docker_settings *s,
		       struct json_object *was, const char *full, struct zns_err *err)
{
	struct json_object *now;
	bool same;

	if (strstr(c->image, "@sha256:") ||
	    (s->source[DOCKER_FROM_IMAGE] && !strcmp(s->value[DOCKER_FROM_IMAGE], "name")))
		return 0;
	now = docker_layers(c->spec, "");
	if (!now)
		return zns_fail(
			err, -EPERM,
			"zns.from: this container's root is no overlay of directories that can "
			"be compared: name its image %s by the digest; from-image=name of "
			"docker.rules allows it",
			c->image);
	if (!was) {
		json_object_put(now);
		return zns_fail(
			err, -EPERM,
			"zns.from: %s does not say on which layers its container ran: make a "
			"new checkpoint, or name the image by its digest; from-image=name of "
			"docker.rules allows it",
			full);
	}
	same = json_object_equal(was, now);
	json_object_put(now);
	return same ? 0 :
		      zns_fail(
			      err, -EPERM,
			      "zns.from: %s, by which both name their image, has not the layers "
			      "that %s ran on: was it pushed or pulled again? Make a new checkpoint, "
			      "or name the image by its digest; from-image=name of docker.rules "
			      "allows it",
			      c->image, full);
}

/* Does the container run the program that was checkpointed, from the same files? */
static int same_program(const struct docker_container *c, const struct docker_settings *s,
			const char *dir, const char *full, struct zns_err *err)
{
	struct json_object *was = NULL, *args;
	char path[PATH_MAX];
	int ret = -EPERM;

	snprintf(path, sizeof(path), "%.*s/" DOCKER_SHAPE_FILE, PATH_MAX - 32, dir);
	if (!zns_json_read(path, &was, NULL)) {
		args = zns_json_get(zns_json_get(was, "process"), "args");
		if (args &&
		    json_object_equal(args, zns_json_get(zns_json_get(c->spec, "process"), "args")))
			ret = 0;
	}
	ret = ret ? zns_fail(err, ret,
			     "zns.from: the container differs from %s in its program or the "
			     "program's arguments",
			     full) :
		    same_layers(c, s, zns_json_get(was, DOCKER_SHAPE_LAYERS), full, err);
	json_object_put(was);
	return ret;
}

/*
 * Returns the container's own name, which is the third part of NAMESPACE/POD/CONTAINER or
 * NAMESPACE/POD/CONTAINER/ID, and its length in *@n. NULL: there is none.
 */
static const char *own_name(const char *name, size_t *n)
{
	for (int i = 0; name && i < 2; i++) {
		name = strchr(name, '/');
		name = name ? name + 1 : NULL;
	}
	*n = name ? strcspn(name, "/") : 0;
	return name;
}

/*
 * Is the checkpoint @full of a container with another name? A pod has one annotation for all of its
 * containers, so then it is not meant for this one.
 */
static bool is_for_another(const struct docker_container *c, const char *full)
{
	size_t a, b;
	const char *mine = own_name(c->name, &a), *its = own_name(full, &b);

	return a != b || !a || strncmp(mine, its, a);
}

int docker_from_store(const struct docker_container *c, const struct docker_settings *s,
		      struct docker_resume *r, struct zns_err *err)
{
	struct found f = { .any = false };
	int ret;

	if (!strchr(c->name, '/'))
		return zns_fail(err, -EPERM,
				"zns.from: its CRI names no pod, or not so that it counts");
	ret = find(s, &f, err);

	if (ret || is_for_another(c, f.full))
		return ret;
	if (!*c->image || strcmp(c->image, f.image))
		return zns_fail(err, -EPERM, "zns.from: the container differs from %s in its image",
				f.full);
	ret = docker_run_path(c->id, DOCKER_FROM_DIR, r->dir, sizeof(r->dir), err);
	if (ret)
		return ret;
	docker_remove_dir(r->dir); /* left behind by a create that was killed */
	ret = take(&f, r->dir, err);
	if (ret)
		return zns_wrap(err, "checkpoint %s", f.full);
	snprintf(r->name, sizeof(r->name), "%s", f.full);
	zns_uuid_format(f.id, r->from);
	return same_program(c, s, r->dir, f.full, err);
}

void docker_from_forget(const char *id)
{
	char path[PATH_MAX];

	if (!docker_run_path(id, DOCKER_FROM_DIR, path, sizeof(path), NULL))
		docker_remove_dir(path);
}
