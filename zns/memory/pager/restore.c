/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A restore into a memory context. criu's lazy-pages daemon starts this pager. The daemon answers
 * faults until all processes are restored, and then gives us their userfaultfds and the list of
 * pages that they lack. The processes may run when both we and the keeper have all of these. If
 * anything fails before, they are killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "pager.h"
#include "zns-wire.h"
#include "zns/packet.h"
#include "zns/util.h"

#define LOG_MAX MIB(1)
#define PLACES_MAX (1u << 26) /* most entries of a list, enough for 256 GiB */

_Static_assert(sizeof(struct zns_origin_part) == sizeof(struct zw_place), "one form of both");

/* Redirects the output to a log beside the socket, as `znsctl memory attach` does. */
static void open_log(const char *name)
{
	char file[ZNS_NAME_MAX + 8];
	cleanup_close int dir = zns_run_subdir("memory", NULL);
	cleanup_close int fd = -1;
	struct stat st;

	snprintf(file, sizeof(file), "%s.log", name);
	if (dir >= 0)
		fd = openat(dir, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			    0600);
	if (fd < 0 || dup2(fd, 2) < 0)
		return;
	if (!fstat(fd, &st) && st.st_size > (off_t)LOG_MAX && ftruncate(fd, 0) < 0)
		fprintf(stderr, "%s: %s\n", file, strerror(errno));
}

static void answer(int sk, int ret, const struct zns_err *err)
{
	struct zw_reply r = { .code = ret };
	const struct iovec iov = { &r, sizeof(r) };

	if (ret)
		snprintf(r.msg, sizeof(r.msg), "%s", err->msg);
	zns_packet_send(sk, &iov, 1, NULL, 0);
}

static int prepare(struct pager *p, const struct restoring *r, struct zns_err *err)
{
	uint8_t device[ZNS_UUID_LEN], checkpoint[ZNS_UUID_LEN];
	char container[ZNS_NAME_MAX + 1];
	struct zns_pages_params params = { .dev = r->device, .container = p->name };
	struct zns_mem_store st;
	int lock, ret;

	if (zns_uuid_parse(r->device, device) || zns_uuid_parse(r->checkpoint, checkpoint))
		return zns_fail(err, -EINVAL, "--dev and --checkpoint are UUIDs here");
	/*
	 * memory of an encrypted checkpoint is always encrypted on zones, whatever the rule for new
	 * checkpoints is
	 */
	ret = zns_origin_look(device, checkpoint, container, &params.encrypt, err);
	if (ret)
		return ret;
	if (!*p->name)
		snprintf(p->name, sizeof(p->name), "%s", container);
	ret = zns_check_memory(p->name, err);
	if (ret)
		return ret;
	open_log(p->name);
	ret = zns_memkeep_open(p->name, &p->keep, err);
	if (ret == -EEXIST)
		return zns_fail(err, ret,
				"a memory context called %s is here already; --zns-container gives "
				"this one another name",
				p->name);
	if (!ret)
		ret = zns_pages_open(&params, &p->pages, err);
	if (!ret && zns_pages_fds(p->pages, &lock) != 1)
		ret = zns_fail(err, -EPROTO, "the page store has no lock file");
	if (!ret)
		ret = zns_origin_new(device, checkpoint, lock, &p->origin, err);
	if (!ret && zns_origin_encrypted(p->origin) && zns_pages_key_fd(p->pages) < 0)
		ret = zns_fail(err, -ESTALE, "the checkpoint was put in another one's place");
	store_of(p, &st);
	if (!ret)
		ret = zns_mem_new(p->name, r->dram, &st, &p->m, err);
	if (!ret)
		zns_mem_predict(p->m, true);
	return ret;
}

static int adopt(struct pager *p, const struct zw_given *g, int uffd, const void *parts,
		 struct zns_err *err)
{
	struct zns_mem_given *units = NULL;
	size_t nr = 0;
	int ret = zns_origin_add(p->origin, g->image, parts, g->nr, &units, &nr, err);

	if (ret)
		close(uffd);
	else
		ret = zns_mem_adopt(p->m, g->pid, uffd, units, nr, err);
	free(units);
	return ret;
}

/* Takes over a process, and both descriptors in any case. */
static int take_process(struct pager *p, const struct zw_given *g, int uffd, int list,
			struct zns_err *err)
{
	cleanup_close int fd = list;
	size_t len = (size_t)g->nr * sizeof(struct zw_place);
	cleanup_free void *parts = NULL;
	struct stat st;
	int ret = 0;

	if (g->pid <= 0 || g->nr > PLACES_MAX || fstat(fd, &st) || st.st_size != (off_t)len)
		ret = zns_fail(err, -EPROTO, "an impossible list of pages to come");
	parts = ret ? NULL : malloc(len + 1);
	if (!ret && (!parts || (len && zns_pread_all(fd, parts, len, 0))))
		ret = zns_fail(err, -ENOMEM, "a list of pages to come cannot be read");
	if (ret) {
		close(uffd);
		return ret;
	}
	return adopt(p, g, uffd, parts, err);
}

/* Handles one message of the daemon. Returns 1 if it was the last one. */
static int receive(struct pager *p, int sk, struct zns_err *err)
{
	struct zw_given g;
	const struct iovec iov = { &g, sizeof(g) };
	uint32_t nr = 0;
	int fd[2], n = zns_packet_recv(sk, &iov, 1, fd, 2, &nr);

	if (n <= 0)
		return zns_fail(err, -ECANCELED, "the restore ended before it was complete");
	if (n == sizeof(g) && !g.pid && !nr)
		return 1;
	if (n == sizeof(g) && nr == 2)
		return take_process(p, &g, fd[0], fd[1], err);
	while (nr)
		close(fd[--nr]);
	return zns_fail(err, -EPROTO, "zns-mem and criu are of different builds");
}

static int serve_all(struct pager *p, struct zns_err *err)
{
	int ret = zns_mem_processes(p->m) ?
			  control_open(p, err) :
			  zns_fail(err, -ENOENT, "nothing of it was restored lazily");

	if (!ret)
		/* from now on the context survives the death of this pager */
		ret = hand_over(p, err);
	if (!ret)
		ret = zns_mem_start(p->m, err);
	return ret ? ret : zns_mem_settle(p->m, err);
}

int restore_take(struct pager *p, const struct restoring *r, struct zns_err *err)
{
	int ret = prepare(p, r, err);

	fcntl(r->sk, F_SETFD, FD_CLOEXEC);
	answer(r->sk, ret, err);
	if (!ret) {
		while (!ret)
			ret = receive(p, r->sk, err);
		if (ret == 1)
			ret = serve_all(p, err);
		answer(r->sk, ret, err);
	}
	close(r->sk);
	return ret;
}
