/* SPDX-License-Identifier: GPL-2.0-only */
/* Sends requests to pagers of memory contexts (images/zns-memory.proto). */
#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "memory.h"
#include "zns/broker.h"
#include "zns/grow.h"
#include "zns/packet.h"

#define SUFFIX ".sock"
/* ms to wait for an answer of a pager, except when it has to read back all memory */
#define ANSWER_MS 10000
#define MSG_LIMIT MIB(1)

static int dial(const char *name, struct zns_err *err)
{
	cleanup_close int sk = -1, dir = -1;
	struct ucred c;
	socklen_t len = sizeof(c);
	char file[ZNS_NAME_MAX + sizeof(SUFFIX)];
	int ret;

	if (zns_check_memory(name, err))
		return -ENOENT;
	snprintf(file, sizeof(file), "%s" SUFFIX, name);
	dir = zns_run_subdir(MEMORY_DIR, err);
	if (dir < 0)
		return dir;
	sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ret = sk < 0 ? -errno : zns_run_connect(sk, dir, file);
	if (ret)
		return ret == -ENOENT || ret == -ECONNREFUSED ?
			       zns_fail(err, -ENOENT,
					"no memory context %s is here; "
					"`znsctl memory status` lists them",
					ctl_text(name)) :
			       zns_fail_sys(err, ret, "cannot connect to memory context %s",
					    ctl_text(name));
	if (getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 || (c.uid && c.uid != geteuid()))
		return zns_fail(err, -EPERM, "the socket of memory context %s is another user's",
				ctl_text(name));
	return zns_take_fd(&sk);
}

struct wait {
	int fd, ms;
};

static int wait_ready(void *arg, short events)
{
	const struct wait *w = arg;
	struct pollfd p = { .fd = w->fd, .events = events };
	int n;

	while ((n = poll(&p, 1, w->ms)) < 0 && errno == EINTR)
		;
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

static int talk(int sk, const ZnsPb__MemoryRequest *q, ZnsPb__MemoryAnswer **out)
{
	struct wait w = { sk, q->op == ZNS_PB__MEMORY_OP__MEMORY_DETACH ? -1 : ANSWER_MS };
	cleanup_free uint8_t *body = NULL, *in = NULL;
	uint32_t in_len = 0;
	size_t len = zns_pb__memory_request__get_packed_size(q);
	int ret;

	body = malloc(len + 1);
	if (!body)
		return -ENOMEM;
	zns_pb__memory_request__pack(q, body);
	ret = zns_msg_send(sk, body, (uint32_t)len, wait_ready, &w);
	if (!ret)
		ret = zns_msg_recv(sk, &in, &in_len, wait_ready, &w);
	if (ret)
		return ret;
	*out = in_len <= MSG_LIMIT ? zns_pb__memory_answer__unpack(NULL, in_len, in) : NULL;
	return *out ? 0 : -EBADMSG;
}

int memory_call(const char *name, const ZnsPb__MemoryRequest *q, ZnsPb__MemoryAnswer **out,
		struct zns_err *err)
{
	cleanup_close int sk = dial(name, err);
	ZnsPb__MemoryAnswer *r = NULL;
	int ret;

	if (sk < 0)
		return sk;
	ret = talk(sk, q, &r);
	if (ret == -EPIPE || ret == -ECONNRESET)
		return zns_fail(err, -EPIPE,
				"the pager of %s died; its keeper starts the next one, ask again",
				ctl_text(name));
	if (ret)
		return zns_fail_sys(err, ret, "cannot talk to the pager of %s", ctl_text(name));
	if (r->error || (r->has_code && r->code)) {
		ret = r->has_code && r->code < 0 ? r->code : -EIO;
		zns_fail(err, ret, "%s", r->error ? r->error : "the pager gives no reason");
	}
	if (ret || !out)
		zns_pb__memory_answer__free_unpacked(r, NULL);
	else
		*out = r;
	return ret;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void memory_names_free(char **names, size_t nr)
{
	while (nr)
		free(names[--nr]);
	free(names);
}

int memory_names(char ***out, size_t *nr, struct zns_err *err)
{
	char **names = NULL, path[4096];
	struct dirent *e;
	size_t max = 0;
	DIR *d;

	*out = NULL;
	*nr = 0;
	if ((size_t)snprintf(path, sizeof(path), "%s/" MEMORY_DIR, zns_run_dir()) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s", zns_run_dir());
	d = opendir(path);
	if (!d)
		return errno == ENOENT ? 0 : zns_fail_sys(err, -errno, "cannot open %s", path);
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (len <= strlen(SUFFIX) || strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX))
			continue;
		e->d_name[len - strlen(SUFFIX)] = 0;
		if (zns_check_memory(e->d_name, NULL))
			continue;
		if (zns_grow(names, *nr, max) || !(names[*nr] = strdup(e->d_name))) {
			closedir(d);
			memory_names_free(names, *nr);
			return zns_fail(err, -ENOMEM, "no memory for a list of memory contexts");
		}
		++*nr;
	}
	closedir(d);
	if (*nr)
		qsort(names, *nr, sizeof(*names), by_name);
	*out = names;
	return 0;
}

static bool has_pid(const char *name, uint64_t pid)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	ZnsPb__MemoryAnswer *r;
	bool found = false;

	q.op = ZNS_PB__MEMORY_OP__MEMORY_STATUS;
	if (memory_call(name, &q, &r, NULL))
		return false;
	for (size_t i = 0; r->status && i < r->status->n_processes; i++)
		found |= r->status->processes[i]->pid == pid;
	zns_pb__memory_answer__free_unpacked(r, NULL);
	return found;
}

int memory_find(const char *what, char *name, size_t len, struct zns_err *err)
{
	bool found = false;
	char **names, plain[256];
	uint64_t pid;
	size_t nr;
	int ret = memory_names(&names, &nr, err);

	if (ret)
		return ret;
	/* the context of a container has the container's name, with + for each slash */
	snprintf(plain, sizeof(plain), "%s", what);
	for (char *p = plain; *p; p++)
		if (*p == '/')
			*p = '+';
	for (size_t i = 0; i < nr && !found; i++)
		found = !strcmp(names[i], plain);
	if (found) {
		snprintf(name, len, "%s", plain);
	} else if (!zns_parse_number(what, 2, INT32_MAX, &pid)) {
		for (size_t i = 0; i < nr && !found; i++) {
			found = has_pid(names[i], pid);
			snprintf(name, len, "%s", names[i]);
		}
	}
	memory_names_free(names, nr);
	return found ? 0 :
		       zns_fail(err, -ENOENT,
				"%s is in no memory context; `znsctl memory status` lists them",
				ctl_text(what));
}

int memory_status(const char *name, ZnsPb__MemoryAnswer **out, struct zns_err *err)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	int ret;

	q.op = ZNS_PB__MEMORY_OP__MEMORY_STATUS;
	ret = memory_call(name, &q, out, err);
	if (!ret && !(*out)->status) {
		zns_pb__memory_answer__free_unpacked(*out, NULL);
		ret = zns_fail(
			err, -EPROTO,
			"the pager of %s sent no status: znsctl and zns-mem may be of different builds",
			ctl_text(name));
	}
	return ret;
}
