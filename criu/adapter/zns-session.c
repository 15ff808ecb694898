/* SPDX-License-Identifier: GPL-2.0-only */
/* The start and the end of a dump or restore on zones. See include/zns-img.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cr_options.h"
#include "crtools.h"
#include "image.h"
#include "kerndat.h"
#include "log.h"
#include "pstree.h"
#include "servicefd.h"
#include "util.h"
#include "zns-bundle.h"
#include "zns-extend.h"
#include "zns-files.h"
#include "zns-awake.h"
#include "zns-freeze.h"
#include "zns-guard.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-netlock.h"
#include "zns-opts.h"
#include "zns-send.h"
#include "zns-state.h"
#include "zns-settings.h"
#include "zns-stop.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static struct timespec frozen_since, frozen_until;
static struct timespec begun;
/* the socket on which the helper will answer the first request; -1: none */
static int asked = -1;
static bool refused; /* the first request failed, and its error was printed */
static bool pre_dumps;
static bool late; /* the commit follows the thaw (live dump) */

static bool have_handle(void)
{
	return !faccessat(get_service_fd(IMG_FD_OFF), HANDLE_NAME, F_OK, AT_SYMLINK_NOFOLLOW);
}

int zns_refuse(const char *what)
{
	if (zns_opts_given)
		pr_err("%s does not work with zones: leave out the zns options, or leave out %s\n",
		       what, what);
	else if (have_handle())
		pr_err("%s does not work with zones, and the image directory has a " HANDLE_NAME
		       "\n",
		       what);
	else
		return 0;
	return -1;
}

/*
 * Adds descriptors for progress: the terminal, unless the log goes there too, and the target for
 * JSON lines in $ZNS_PROGRESS (a descriptor's number or an absolute path). -1: that target cannot
 * be opened.
 */
static int add_progress(struct zns_msg *m, int *opened)
{
	const char *to = secure_getenv("ZNS_PROGRESS");
	int fd;

	*opened = -1;
	zns_opts.progress = 0;
	if (isatty(STDERR_FILENO) && (opts.output || opts.log_level < LOG_INFO)) {
		zns_opts.progress |= ZW_PROGRESS_TTY;
		m->fd[m->nr_fd++] = STDERR_FILENO;
	}
	if (!to || !*to)
		return 0;
	if (*to == '/') {
		fd = *opened = open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
		if (fd < 0) {
			pr_perror("ZNS_PROGRESS: can't open %s", to);
			return -1;
		}
	} else {
		char *end;
		long n = strtol(to, &end, 10);

		if (*to < '0' || *to > '9' || *end || n > INT_MAX || fcntl((int)n, F_GETFL) < 0) {
			pr_err("ZNS_PROGRESS=%s is neither an absolute path nor the number of an open descriptor\n",
			       to);
			return -1;
		}
		fd = (int)n;
	}
	zns_opts.progress |= ZW_PROGRESS_JSON;
	m->fd[m->nr_fd++] = fd;
	return 0;
}

/* Starts the helper and sends the first request. begin() waits for the answer. */
static int ask_to_begin(enum zw_op op, pid_t pid)
{
	struct zns_msg m = ZNS_MSG(op);
	struct zw_reply r;
	int progress;

	zns_session.used = refused = true;
	if (zns_link_start() ||
	    (op == ZW_DUMP_BEGIN && zns_opts.timeout_s && zns_link_limit(zns_opts.timeout_s)))
		return -1;
	if (op == ZW_DUMP_BEGIN && !zns_link_hold())
		zns_stop_dump();
	refused = false;
	zns_opts.pid = pid;
	zns_opts.parent_dir = op != ZW_RESTORE_BEGIN && opts.img_parent;
	zns_opts.half = (opts.mode == CR_RESTORE && (opts.lazy_pages || zns_memory)) ||
			(opts.mode == CR_DUMP && opts.lazy_pages);
	/* after a restore the process may become a daemon, which is another process */
	m.h.nr = op == ZW_DUMP_BEGIN || opts.mode == CR_RESTORE;
	m.payload = &zns_opts;
	m.len = sizeof(zns_opts);
	m.fd[0] = get_service_fd(IMG_FD_OFF);
	m.nr_fd = 1;
	r.msg[0] = '\0';
	asked = add_progress(&m, &progress) ? -1 : zns_ask_begin(&m, &r);
	close_safe(&progress);
	if (asked >= 0)
		return 0;
	refused = true;
	if (r.msg[0])
		zns_pr_err("%s\n", r.msg);
	zns_link_close();
	return -1;
}

static int begin(enum zw_op op, pid_t pid)
{
	struct zw_reply r;
	int ret, images;

	const struct {
		bool given;
		const char *name;
	} conflict[] = {
		{ opts.auto_dedup, "--auto-dedup" },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(conflict); i++) {
		if (conflict[i].given) {
			pr_err("%s does not work with zones: leave it out\n", conflict[i].name);
			return -1;
		}
	}
	if (asked < 0 && (refused || ask_to_begin(op, pid)))
		return -1;
	ret = zns_recv_reply(asked, &r, &images);
	close_safe(&asked);
	if (ret)
		zns_pr_err("%s\n", r.msg);
	if (ret || zns_bundle_take(images)) {
		zns_link_close();
		return -1;
	}
	if (op == ZW_DUMP_BEGIN)
		zns_live_decided(&r);
	zns_session.nr_parents = r.size;
	memcpy(zns_session.ids.id, r.id, sizeof(zns_session.ids.id));
	memcpy(zns_session.ids.parent, r.parent, sizeof(zns_session.ids.parent));
	if (r.warn)
		pr_warn("%s\n", r.msg);
	else if (r.msg[0])
		pr_info("%s\n", r.msg);
	if (r.kind == ZW_KIND_POST_COPY && !opts.lazy_pages && opts.mode != CR_LAZY_PAGES) {
		pr_err("This checkpoint was dumped with --lazy-pages: pages that it lacks come from the process itself, over "
		       "--lazy-pages\n");
		zns_link_close();
		return -1;
	}
	return 0;
}

static void set_dump(bool pre_dump)
{
	clock_gettime(CLOCK_MONOTONIC, &begun);
	zns_opts.timeout_s = zns_opts_timeout ? opts.timeout : 0;
	zns_opts.pre_dump = pre_dump;
	zns_live_offer(pre_dump);
}

/*
 * Starts the helper early. Errors are ignored here, since they occur again when the command begins.
 * A dump over RPC does not know the PID of its task yet.
 */
void zns_begin_early(void)
{
	bool dump = opts.mode == CR_DUMP || opts.mode == CR_PRE_DUMP;

	if (asked >= 0 || opts.stream || opts.auto_dedup)
		return;
	if (dump && opts.tree_id && zns_opts_given && !zns_opts.checkpoint[0] &&
	    !opts.use_page_server) {
		set_dump(opts.mode == CR_PRE_DUMP);
		ask_to_begin(ZW_DUMP_BEGIN, opts.tree_id);
	} else if (opts.mode == CR_RESTORE && (zns_opts.checkpoint[0] || have_handle())) {
		ask_to_begin(ZW_RESTORE_BEGIN, 0);
	}
}

/* Should this dump use zones? 1: yes; 0: no; -1: an error was printed. */
static int want_dump(void)
{
	if (zns_memory) {
		pr_err("--zns-memory is for restore; `znsctl memory attach` is for a program that runs\n");
		return -1;
	}
	if (zns_opts_given && !opts.use_page_server) {
		if (!zns_opts.checkpoint[0])
			return 1;
		pr_err("--zns-checkpoint is for restore; a dump makes a checkpoint of its own\n");
		return -1;
	}
	/* A restore would use the handle, and so restore the older checkpoint. */
	if (have_handle()) {
		pr_err("The image directory has the " HANDLE_NAME
		       " of a checkpoint on zones: use another directory, or "
		       "remove the file (the checkpoint stays on its device)\n");
		return -1;
	}
	if (zns_opts_given)
		pr_warn("With --page-server the pages go to the page server, and the zns options have no effect here: all other images become plain files\n");
	return 0;
}

static int check_device(struct zw_reply *r)
{
	struct zns_msg m = ZNS_MSG(ZW_CHECK);
	int ret;

	if (zns_link_start())
		return -1;
	m.payload = zns_opts.dev;
	m.len = strlen(zns_opts.dev) + 1;
	ret = zns_ask(&m, r, NULL);
	zns_link_close();
	if (ret)
		zns_pr_err("%s\n", r->msg);
	else
		pr_info("%s\n", r->msg);
	return ret ? -1 : 0;
}

int zns_check_feature(void)
{
	struct zw_reply r;

	return check_device(&r);
}

bool zns_check_tracks(void)
{
	struct zw_reply r;

	return zns_opts_given && !check_device(&r) && r.kind == ZW_KIND_PAGES;
}

/*
 * Does mountinfo have a line for `/`? In a plain chroot it has none. CRIU then cannot order the
 * mounts: it would first stop the tasks, and then fail with "No parent found for mountpoint".
 */
static bool root_is_mounted(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool known = false, found = false;
	char *line = NULL, at[3];
	size_t size = 0;

	while (f && !found && getline(&line, &size, f) > 0) {
		known = true;
		found = sscanf(line, "%*s %*s %*s %*s %2s", at) == 1 && !strcmp(at, "/");
	}
	free(line);
	if (f)
		fclose(f);
	return found || !known; /* true if mountinfo cannot be read: a later step reports that */
}

int zns_dump_begin(pid_t pid, bool pre_dump)
{
	int ret;

	pre_dumps = pre_dump;
	/*
	 * CRIU tracks memory in every pre-dump, even without --track-mem, and fails if the kernel
	 * cannot. The helper may be able to (zns_live_rounds(), zns_send_begin()).
	 */
	if (pre_dump && !kdat.has_dirty_track && !zns_tracks_memory()) {
		pr_err("pre-dump needs a kernel that tracks changed memory (CONFIG_MEM_SOFT_DIRTY), and this one does not: "
		       "make a full dump (criu dump), or pre-dump into zones\n");
		return -1;
	}
	ret = want_dump();
	if (ret <= 0)
		return ret;
	if (zns_live_check(pre_dump))
		return -1;
	if (kill(pid, 0) && errno == ESRCH) {
		pr_err("There is no process %d\n", pid);
		return -1;
	}
	if (!root_is_mounted()) {
		pr_err("/ is no mount point here, as in a plain chroot, and CRIU cannot dump there: use a container, or "
		       "pivot_root in a mount namespace of its own\n");
		return -1;
	}
	if (asked < 0)
		set_dump(pre_dump);
	if (zns_files_begin() || begin(ZW_DUMP_BEGIN, pid))
		return -1;
	zns_session.state = ZNS_DUMP;
	if (!pre_dump) {
		zns_cgroup2_open(pid);
		zns_find_iptables(pid);
		zns_netlock_choose();
	}
	/*
	 * criu leaves out clean pages only if it has a parent; only the helper knows where the
	 * parent is
	 */
	if (zns_session.nr_parents && !opts.img_parent) {
		opts.img_parent = xstrdup("(on zones)");
		if (!opts.img_parent)
			return -1;
	}
	return 0;
}

bool zns_parent_untracked(void)
{
	static bool said;

	if (zns_session.state != ZNS_DUMP)
		return false;
	if (!said)
		pr_warn("The parent was dumped without --track-mem: this dump holds all memory\n");
	said = true;
	return true;
}

int zns_receive_begin(void)
{
	int ret = want_dump();

	if (ret <= 0)
		return ret;
	/* the page server writes images here, which could not be told from the existing ones */
	if (!faccessat(get_service_fd(IMG_FD_OFF), "inventory.img", F_OK, 0)) {
		pr_err("The image directory has images of another dump: give the page server an empty one\n");
		return -1;
	}
	if (begin(ZW_RECEIVE_BEGIN, 0))
		return -1;
	zns_session.state = ZNS_DUMP;
	zns_session.receiving = true;
	return 0;
}

int zns_dump_freeze(void)
{
	pid_t root = root_item->pid->real;

	zns_affinity_begin(root);
	if (zns_guard_tasks(root))
		return -1;
	if (zns_session.state == ZNS_DUMP && !pre_dumps && zns_netlock_begin(root))
		return -1;
	if (zns_mem_begin(root) || zns_guard_tree(root, pre_dumps) ||
	    (opts.use_page_server ? zns_send_begin(pre_dumps) : zns_live_rounds(zns_opts.pre_dump)))
		return -1;
	if (zns_opts.live & ZW_LIVE_ON)
		zns_cpus_awake(0);
	clock_gettime(CLOCK_MONOTONIC, &frozen_since);
	/*
	 * Sets criu's own time limit, for stopping the tasks, to the time that is left after
	 * admission.
	 */
	if (zns_session.state == ZNS_DUMP && zns_opts.timeout_s)
		opts.timeout = max_t(
			long, (long)zns_opts.timeout_s - (frozen_since.tv_sec - begun.tv_sec), 1);
	return 0;
}

void zns_dump_thaw(void)
{
	clock_gettime(CLOCK_MONOTONIC, &frozen_until);
}

static int memory_begin(void)
{
	if (!zns_extends() || opts.mode == CR_RESTORE)
		return zns_extends() ? zns_extend_begin() : 0;
	if (zns_memory_daemon)
		return 0;
	pr_err("--zns-memory is for criu restore, which starts a lazy-pages daemon of its own\n");
	return -1;
}

int zns_restore_begin(void)
{
	if (!zns_opts.checkpoint[0] && !have_handle()) {
		if (!zns_opts_given ||
		    !faccessat(get_service_fd(IMG_FD_OFF), "inventory.img", F_OK, 0))
			return memory_begin();
		pr_err("The image directory has neither a " HANDLE_NAME
		       " nor plain images; to restore a checkpoint by its id "
		       "give --zns-checkpoint ID (`znsctl ls` lists them)\n");
		return -1;
	}
	if (zns_opts.record && opts.mode == CR_RESTORE)
		pr_warn("--zns-record is for criu lazy-pages, which sees the faults: give it there\n");
	if (begin(ZW_RESTORE_BEGIN, 0))
		return -1;
	zns_session.state = ZNS_RESTORE;
	return memory_begin();
}

/* the line for the user: "checkpoint ID of NAME" */
static char committed[sizeof(((struct zw_reply *)0)->msg)];

/*
 * Writes the checkpoint's id to the descriptor of a script. This comes after the tasks were
 * released or killed, since the reader may be slow or gone.
 */
static void say_checkpoint(void)
{
	void (*old)(int);

	if (!committed[0] || zns_over_rpc || (opts.mode != CR_DUMP && opts.mode != CR_PRE_DUMP) ||
	    isatty(STDOUT_FILENO))
		return;
	old = signal(SIGPIPE, SIG_IGN);
	pr_msg("%s\n", committed);
	signal(SIGPIPE, old);
	committed[0] = '\0';
}

static int commit(void)
{
	struct zns_msg m = ZNS_MSG(ZW_COMMIT);
	struct timespec now = frozen_until;
	struct zw_reply r;

	if (!now.tv_sec)
		clock_gettime(CLOCK_MONOTONIC, &now);
	m.h.nr = opts.lazy_pages;
	m.h.off = zns_session.receiving ? 0 :
					  (now.tv_sec - frozen_since.tv_sec) * 1000000ull +
						  (now.tv_nsec - frozen_since.tv_nsec) / 1000;
	if (zns_ask(&m, &r, NULL)) {
		zns_pr_err("%s%s\n", r.msg,
			   r.code == -EPIPE ? "; `znsctl ls` tells whether the checkpoint exists" :
					      "");
		return -1;
	}
	zns_link_unlimit();
	if (strstr(r.msg, " committed"))
		snprintf(committed, sizeof(committed), "%.*s",
			 (int)(strstr(r.msg, " committed") - r.msg), r.msg);
	if (r.warn)
		pr_warn("%s\n", r.msg);
	else
		pr_info("%s\n", r.msg);
	return 0;
}

/* Have all steps succeeded so far? If not, prints the helper's error. */
static int why(void)
{
	struct zns_msg m = ZNS_MSG(ZW_WHY);
	struct zw_reply r;

	if (!zns_ask(&m, &r, NULL))
		return 0;
	zns_pr_err("%s\n", r.msg);
	return -1;
}

int zns_dump_commit(int failed)
{
	if (!failed)
		zns_dump_taken();
	if (zns_sends())
		return zns_send_end(failed);
	if (zns_session.state != ZNS_DUMP)
		return failed;
	if (failed) {
		why();
		return failed;
	}
	if (!zns_session.receiving && zns_files_take())
		return -1;
	if (!zns_live_commits_late())
		return commit();
	late = true;
	return why();
}

int zns_live_commit(int failed)
{
	zns_cpus_may_sleep();
	if (!late || failed)
		return failed;
	zns_dump_thaw();
	return commit();
}

void zns_restore_done(void)
{
	struct zns_msg m = ZNS_MSG(ZW_DONE);
	struct zw_reply r;

	if (zns_session.state != ZNS_RESTORE)
		return;
	/* the tasks run already, so an error here only loses the figures */
	if (zns_ask(&m, &r, NULL))
		pr_warn("%s\n", r.msg);
	else
		pr_info("%s\n", r.msg);
}

void zns_close(void)
{
	say_checkpoint();
	if (zns_session.state != ZNS_OFF || asked >= 0)
		zns_link_close();
	close_safe(&asked);
	zns_bundle_drop();
	zns_cgroup2_close();
	zns_session.state = ZNS_OFF;
}
