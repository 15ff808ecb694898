/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stores what a later start must know about a dump: the container's rights, the checkpoint that
 * ended it, and the time after which no file may have been written. Once the container has ended,
 * nothing can be undone, so all that may fail is done before.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include "runc.h"

#define END_MS 5000 /* ms from the kill of the tasks until they must be gone */

static int make_note(const struct docker_container *k, struct ended *e, struct zns_err *err)
{
	int ret = docker_run_path(k->id, "frozen", e->frozen, sizeof(e->frozen), err);

	if (!ret && (ret = zns_replace_file(AT_FDCWD, e->frozen, "", 0, 0600)))
		zns_fail_sys(err, ret, "cannot write %s", e->frozen);
	if (!ret)
		setenv("ZNS_FROZEN_NOTE", e->frozen, 1);
	return ret;
}

int ended_prepare(const struct call *c, const struct docker_container *k,
		  const struct docker_state *state, struct ended *e, struct zns_err *err)
{
	/* containers of a CRI continue to run, and have no directory */
	bool cri = !strcmp(k->kind, "cri");
	int ret;

	/*
	 * For Podman only its stop is of interest: `podman container checkpoint` is followed by
	 * Podman's own restore.
	 */
	if ((!cri && strcmp(k->kind, "docker") && !(*k->bundle && suspend_is_stop(c))) ||
	    call_has_flag(c, "pre-dump") || !c->image_path)
		return 0;
	suspend_name(c, k, e->name, sizeof(e->name));
	e->began_ns = zns_now_ns();
	/* the note is written into this directory, which runc would create only later */
	if (mkdir(c->image_path, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", c->image_path);
	ret = docker_shape_write(c->image_path, state->bundle, cri);
	if (ret)
		return zns_fail_sys(err, ret,
				    "cannot write the note about the container's rights in %s",
				    c->image_path);
	if (cri || call_has_flag(c, "leave-running") || !docker_good_word(e->name)) {
		*e->name = 0;
		return 0;
	}
	e->lock = suspend_lock(k);
	ret = docker_resume_reserve(k, e->name);
	if (ret)
		return zns_fail_sys(
			err, ret,
			"cannot write the note that the container ends with checkpoint %s",
			e->name);
	e->init = state->init_pid > 1 ? (int)syscall(SYS_pidfd_open, state->init_pid, 0) : -1;
	return make_note(k, e, err);
}

/* Has the container ended? A committed dump has ended it, even if runc failed after that. */
static bool has_ended(const struct call *c, const struct ended *e, int failed)
{
	struct pollfd p = { e->init, POLLIN, 0 };

	return !failed ||
	       (call_has_handle(c->image_path) && e->init >= 0 && poll(&p, 1, END_MS) == 1);
}

/*
 * When the container was frozen: as noted by criu, otherwise the time before the dump began. The
 * latter is too early, so the container's own writes may prevent a resume, but no write is
 * overlooked.
 */
static struct docker_frozen frozen_at(const struct ended *e)
{
	cleanup_free uint8_t *text = NULL;
	long long at = 0, dumped = 0;
	size_t n;

	if (!zns_read_file(AT_FDCWD, e->frozen, 128, &text, &n))
		sscanf((char *)text, "%lld %lld", &at, &dumped);
	return (struct docker_frozen){ zns_max(at, e->began_ns), zns_max(dumped, e->began_ns) };
}

void ended_finish(const struct call *c, const struct docker_container *k, struct ended *e,
		  int failed)
{
	struct docker_frozen when;
	int ret;

	if (!*e->name)
		return;
	if (has_ended(c, e, failed)) {
		when = frozen_at(e);
		ret = docker_resume_ended(k, e->name, &when);
		if (ret)
			docker_note(k, LOG_ERR,
				    "it ended with checkpoint %s, but that cannot be noted: %s; "
				    "`znsctl docker resume %s %s` brings it back",
				    e->name, strerror(-ret), k->name, e->name);
	} else {
		docker_resume_unreserve(k);
	}
	if (e->lock >= 0)
		close(zns_take_fd(&e->lock));
	unlink(e->frozen);
	if (e->init >= 0)
		close(zns_take_fd(&e->init));
}
