/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker checkpoint: asks the broker for admission, then calls Docker. containerd freezes the
 * container before criu starts, so if the dump itself waited for admission, the container would be
 * frozen meanwhile. A ticket passes the lease that was granted here on to the dump.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "docker_cmd.h"
#include "zns/crypt.h"

void docker_time_name(const char *prefix, char *out, size_t len)
{
	struct timespec now;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = (size_t)snprintf(out, len, "%s", prefix);
	n += strftime(out + n, len - n, "%Y%m%dT%H%M%S", &tm);
	snprintf(out + n, len - n, ".%03ldZ", now.tv_nsec / 1000000);
}

static int admit(const struct docker_target *t, const struct docker_settings *s,
		 const char *admission, struct zns_broker *b, uint8_t ticket[ZNS_UUID_LEN],
		 struct zns_err *err)
{
	ZnsPb__DumpBegin begin = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	cleanup_answer ZnsPb__Response *r = NULL;
	struct zns_master *master = NULL;
	struct zns_registered reg;
	struct stat st;
	char proc[32];
	int ret;

	ret = ctl_connect(s->source[DOCKER_DEV] ? s->value[DOCKER_DEV] : NULL, &reg, b, err);
	if (ret)
		return ret;
	begin.container = (char *)t->c.name;
	if (s->source[DOCKER_QOS] && zns_parse_mibps(s->value[DOCKER_QOS], &begin.qos_mibps))
		return zns_fail(err, -EINVAL,
				"zns.qos: \"%.60s\" is no bandwidth; write 500, 500MiB/s or 2GiB/s",
				s->value[DOCKER_QOS]);
	begin.has_weight = s->source[DOCKER_WEIGHT] != NULL;
	if (begin.has_weight)
		begin.weight = (uint32_t)strtoul(s->value[DOCKER_WEIGHT], NULL, 10);
	if (s->source[DOCKER_ALLOC])
		begin.alloc = (char *)s->value[DOCKER_ALLOC];
	begin.admission = (char *)admission;
	/* limits apply to the user of the container's first process, as in the dump itself */
	snprintf(proc, sizeof(proc), "/proc/%d",
		 json_object_get_int(zns_json_get(zns_json_get(t->json, "State"), "Pid")));
	if (!stat(proc, &st)) {
		begin.has_uid = 1;
		begin.uid = st.st_uid;
	}
	ret = zns_master_for_dump(&reg, b->encrypted ? b->key_id : NULL, &master, err);
	if (ret)
		return ret;
	begin.has_key_id = master != NULL;
	if (master)
		begin.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES,
						      (uint8_t *)zns_master_id(master) };
	req.dump_begin = &begin;
	ret = zns_broker_call(b, &req, &r, err);
	zns_master_free(master);
	if (ret)
		return ret;
	if (r->dump && r->dump->checkpoint.len == ZNS_UUID_LEN)
		memcpy(ticket, r->dump->checkpoint.data, ZNS_UUID_LEN);
	else
		ret = zns_fail(
			err, -EPROTO,
			"the broker's answer has no checkpoint id: znsctl and znsd are probably of different builds");
	return ret;
}

static int call_docker(const struct docker_daemon *d, const struct docker_target *t,
		       const struct docker_ask *ask, struct zns_err *err)
{
	struct json_object *body = ctl_obj(J("CheckpointID", ask->name), J("Exit", ask->exit));
	char path[256];
	int ret;

	snprintf(path, sizeof(path), "/containers/%s/checkpoints", t->c.id);
	ret = docker_api_call(&d->api, "POST", path, body, NULL, err);
	json_object_put(body);
	if (ret == -ENOENT && !d->experimental)
		ret = zns_fail(
			err, ret,
			"Docker's daemon takes no checkpoints: it is not experimental (znsctl docker install, then "
			"restart it)");
	return ret;
}

int docker_make_checkpoint(const struct docker_daemon *d, const struct docker_target *t,
			   const struct docker_ask *ask, struct zns_err *err)
{
	struct zns_broker b = { .fd = -1 };
	uint8_t ticket[ZNS_UUID_LEN];
	struct docker_settings s;
	char path[PATH_MAX], text[ZNS_UUID_STR];
	const char *admission = ask->admission;
	int ret;

	if (!t->running)
		return zns_fail(err, -EINVAL, "container %s does not run", t->c.name);
	if (!docker_daemon_is_ours(d, t->runtime))
		return zns_fail(
			err, -EINVAL,
			"container %s runs with runtime %s, whose checkpoints are plain files: start it with "
			"--runtime zns",
			t->c.name, t->runtime ? t->runtime : "(unknown)");
	if (!docker_good_name(ask->name))
		return zns_fail(
			err, -EINVAL,
			"\"%.60s\" cannot be a checkpoint's name: give 2 to %d letters, digits, "
			"_ . or -, a letter or digit first",
			ask->name, (int)DOCKER_NAME_MAX);
	ret = docker_settings_read(&t->c, &s, err);
	if (ret)
		return ret;
	if (s.source[DOCKER_DEV] && !strcmp(s.value[DOCKER_DEV], "none"))
		return zns_fail(
			err, -EINVAL,
			"container %s asks for plain checkpoints (zns.dev=none): use docker checkpoint create",
			t->c.name);
	if (!admission)
		admission = s.source[DOCKER_ADMISSION] ? s.value[DOCKER_ADMISSION] : "wait";
	ret = admit(t, &s, admission, &b, ticket, err);
	if (!ret)
		ret = docker_run_path(t->c.id, "ticket", path, sizeof(path), err);
	if (!ret) {
		ret = zns_replace_file(AT_FDCWD, path, zns_uuid_format(ticket, text),
				       ZNS_UUID_STR - 1, 0600);
		if (ret)
			zns_fail_sys(err, ret, "cannot write %s", path);
		else
			ret = call_docker(d, t, ask, err);
		unlink(path);
	}
	zns_broker_close(&b); /* if no dump took the lease, it ends here */
	return ret;
}

static int report(const struct ctl_args *args, const struct docker_target *t, const char *name,
		  uint64_t wall_ns, struct zns_err *err)
{
	cleanup_free struct docker_entry *list = NULL;
	char id[ZNS_UUID_STR] = "", size[16] = "?";
	size_t nr, i;
	int ret = docker_entries(&t->c, &list, &nr, err);

	for (i = 0; !ret && i < nr; i++)
		if (!strcmp(list[i].name, name))
			break;
	if (ret || i == nr)
		return ret ? ret :
			     zns_fail(
				     err, -ENOENT,
				     "Docker made checkpoint %s, but not on zones: was criu given no device?",
				     name);
	zns_uuid_format(list[i].id, id);
	zns_format_size(list[i].bytes, size, sizeof(size));
	if (args->json)
		return ctl_print_json(ctl_obj(J("name", name), J("id", id),
					      J("container", (const char *)t->c.name),
					      J("bytes", list[i].bytes),
					      J("seconds", (double)wall_ns / 1e9)));
	printf("%s: checkpoint %s of %s, %s, in %.2f s\n", name, id, t->c.name, size,
	       (double)wall_ns / 1e9);
	return 0;
}

int docker_checkpoint(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct docker_ask ask = { .name = NULL };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	const char *host = NULL;
	uint64_t keep = 0, start;
	bool leave = false;
	char name[64];
	int ret;
	const struct ctl_opt opts[] = {
		CTL_FLAG("leave-running", &leave), CTL_TEXT("admission", &ask.admission),
		CTL_NUMBER("keep", &keep, 1, 10000, "--keep %.20s: 1 to 10000"),
		CTL_TEXT("host", &host), CTL_OPTS_END
	};

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc < 1 || args.argc > 2 || (keep && args.argc == 2))
		return ctl_usage(cmd, keep ? "a container is wanted, and no name with --keep" :
					     "a container is wanted, and a name at most");
	ask.exit = !leave && !keep;
	docker_time_name(keep ? DOCKER_AUTO_PREFIX : "zns-", name, sizeof(name));
	ask.name = args.argc == 2 ? args.argv[1] : name;
	start = zns_mono_ns();
	ret = docker_open(&d, host, args.argv[0], &t, &err);
	/*
	 * Not an error: a newer version of Docker, or another machine, can restore this checkpoint.
	 */
	if (!ret && docker_cannot_restore(&d, &t))
		fprintf(stderr, "znsctl docker checkpoint: warning: " DOCKER_CANNOT_RESTORE "\n",
			d.version, t.c.name);
	if (!ret)
		ret = docker_make_checkpoint(&d, &t, &ask, &err);
	if (!ret)
		ret = report(&args, &t, ask.name, zns_mono_ns() - start, &err);
	if (!ret && keep)
		ret = docker_thin_out(&d, &t.c, DOCKER_AUTO_PREFIX, NULL, (unsigned)keep, &err);
	docker_close(&d, &t);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}
