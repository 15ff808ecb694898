/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists the checkpoints in a container's directory, and decides which of them to keep. */
#include <fcntl.h>
#include <string.h>
#include "docker_cmd.h"
#include "zns/grow.h"
#include "zns/handle.h"

struct collect {
	const char *container;
	struct docker_entry *list;
	size_t nr;
};

static int add_entry(void *arg, const char *container, const char *name, const char *dir,
		     const uint8_t id[ZNS_UUID_LEN])
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct collect *c = arg;
	struct docker_entry *e;
	ZnsPb__Handle *h;
	int ret;

	if (strcmp(container, c->container) || fd < 0 || zns_handle_read(fd, &h, NULL))
		return 0;
	ret = zns_grow_by_one(c->list, c->nr);
	if (!ret) {
		e = &c->list[c->nr++];
		memset(e, 0, sizeof(*e));
		snprintf(e->name, sizeof(e->name), "%s", name);
		snprintf(e->dir, sizeof(e->dir), "%s", dir);
		memcpy(e->id, id, ZNS_UUID_LEN);
		memcpy(e->device, h->device.data, ZNS_UUID_LEN);
		e->created_ns = h->created_ns;
		e->bytes = h->bytes;
	}
	zns_pb__handle__free_unpacked(h, NULL);
	return ret;
}

static int newest_first(const void *a, const void *b)
{
	const struct docker_entry *x = a, *y = b;

	return x->created_ns < y->created_ns ? 1 :
	       x->created_ns > y->created_ns ? -1 :
					       strcmp(y->name, x->name);
}

void docker_sort(struct docker_entry *list, size_t nr)
{
	if (nr)
		qsort(list, nr, sizeof(*list), newest_first);
}

int docker_entries(const struct docker_container *k, struct docker_entry **out, size_t *nr,
		   struct zns_err *err)
{
	struct collect c = { .container = k->id };
	int ret = docker_each_handle(k->root, add_entry, &c);

	if (ret) {
		free(c.list);
		return zns_fail_sys(err, ret, "the checkpoints below %s cannot be listed", k->root);
	}
	docker_sort(c.list, c.nr);
	*out = c.list;
	*nr = c.nr;
	return 0;
}

/* Does the broker have the checkpoint? Asks for a restore lease and releases it at once. */
int docker_entry_check(const struct docker_entry *e, struct zns_err *err)
{
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	char dev[ZNS_UUID_STR];

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)e->id };
	req.restore_begin = &rb;
	return ctl_call(zns_uuid_format(e->device, dev), &req, NULL, err);
}

static int rm_on_device(const struct docker_entry *e, struct zns_err *err)
{
	ProtobufCBinaryData id = { ZNS_UUID_LEN, (uint8_t *)e->id };
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	char dev[ZNS_UUID_STR];

	rm.checkpoints = &id;
	rm.n_checkpoints = 1;
	rm.by = (char *)"znsctl docker, for a newer one";
	req.rm = &rm;
	return ctl_call(zns_uuid_format(e->device, dev), &req, NULL, err);
}

int docker_thin_out(const struct docker_daemon *d, const struct docker_container *c,
		    const char *prefix, const char *spare, unsigned keep, struct zns_err *err)
{
	cleanup_free struct docker_entry *list = NULL;
	size_t nr = 0, i, seen = 0;
	struct docker_made m;
	char path[1024];
	int ret = docker_entries(c, &list, &nr, err);

	for (i = 0; !ret && i < nr; i++) {
		if (strncmp(list[i].name, prefix, strlen(prefix)) ||
		    (spare && !strcmp(list[i].name, spare)) || ++seen <= keep)
			continue;
		snprintf(path, sizeof(path), "/containers/%s/checkpoints/%s", c->id, list[i].name);
		ret = docker_api_call(&d->api, "DELETE", path, NULL, NULL, err);
		/* a clone may refer to the same checkpoint */
		m = (struct docker_made){ .root = c->root,
					  .container_id = c->id,
					  .checkpoint_name = list[i].name,
					  .id = list[i].id };
		if (!ret && docker_checkpoint_life(&m, NULL, 0) == DOCKER_GONE)
			ret = rm_on_device(&list[i], err);
	}
	return ret;
}
