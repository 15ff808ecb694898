/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Leaves out the pause that Docker makes for a checkpoint. containerd pauses a container before
 * `runc checkpoint` and resumes it afterwards. criu freezes the tasks by itself, and only as long
 * as necessary: a live dump copies memory while they run, and a pager that has to release them
 * needs them running, too. A pause also freezes the `runc init` of a `docker exec` that has just
 * begun. Then `runc exec` waits for that init, containerd's shim waits for `runc exec`, and the
 * resume waits for the shim: a deadlock. So if a pause belongs to a checkpoint, this reports
 * success without pausing. A mark in our run directory says that the following resume must also be
 * skipped, since runc would find nothing to resume, and fail.
 *
 * dockerd makes the checkpoint's directory before it calls containerd. A new, empty directory shows
 * that the pause is for a checkpoint and not a user's `docker pause`. When in doubt the container
 * is paused, and the dump is not live.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "runc.h"
#include "zns/config.h"

/*
 * Most seconds between the creation of the directory and the pause. A crashed dockerd leaves an
 * empty directory behind, which must not be taken for a new checkpoint later.
 */
#define FRESH_S 30
#define MARK "live"

static bool checkpoint_begins(const struct docker_container *k)
{
	char name[256], path[2 * PATH_MAX];
	struct stat st;
	time_t age;

	docker_pending_checkpoint(k, name, sizeof(name));
	if (!*name || (size_t)snprintf(path, sizeof(path), "%s/containers/%s/checkpoints/%s",
				       k->root, k->id, name) >= sizeof(path))
		return false;
	if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return false;
	age = time(NULL) - st.st_mtim.tv_sec;
	return age >= -1 && age <= FRESH_S;
}

/* The content of the mark: the container's first process, which is another one after a restart. */
static void mark_text(const struct docker_state *s, char *out, size_t len)
{
	snprintf(out, len, "%d %" PRIu64 "\n", s->init_pid, s->init_start);
}

static bool leaves_out(const struct call *c, const struct docker_state *s)
{
	const struct docker_runtime rt = { c->docker_root, c->root };
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_container k;
	char path[PATH_MAX], text[64];
	bool wanted;

	wanted = !docker_container_read(&rt, s->bundle, c->id, &k, &err) &&
		 !strcmp(k.kind, "docker") && checkpoint_begins(&k);
	docker_container_fini(&k);
	if (!wanted || docker_run_path(c->id, MARK, path, sizeof(path), &err))
		return false;
	mark_text(s, text, sizeof(text));
	return !zns_replace_file(AT_FDCWD, path, text, strlen(text), 0600);
}

static bool was_left_out(const struct call *c, const struct docker_state *s)
{
	cleanup_free uint8_t *have = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	char dir[PATH_MAX], name[192], text[64];
	size_t len;

	if ((size_t)snprintf(dir, sizeof(dir), "%s/docker", zns_run_dir()) >= sizeof(dir))
		return false;
	snprintf(name, sizeof(name), "%s." MARK, c->id);
	mark_text(s, text, sizeof(text));
	return !docker_read_admin(dir, name, sizeof(text), &have, &len, &err) &&
	       !strcmp((char *)have, text);
}

bool pause_call(const struct call *c)
{
	bool pause = !strcmp(c->command, "pause"), resume = !strcmp(c->command, "resume"), done;
	struct zns_err err = ZNS_ERR_INIT;
	struct docker_state s;

	if ((!pause && !resume && strcmp(c->command, "delete")) || !docker_good_id(c->id))
		return false;
	done = (pause || resume) && !docker_state_read(c->root, c->id, &s, &err) && !s.frozen &&
	       s.init_pid > 0 && s.init_start;
	if (done && resume)
		done = was_left_out(c, &s);
	/* an older mark is obsolete in any case */
	docker_run_unlink(c->id, MARK);
	return done && (resume || leaves_out(c, &s));
}
