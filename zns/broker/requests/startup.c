/* SPDX-License-Identifier: GPL-2.0-only */
/* Start and end of a broker: finds the device by its name, and takes it over exclusively. */
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include "zns/context.h"
#include "zns/process.h"
#include "requests.h"

#define WRITERS_MS 10000 /* time within which helpers of a dead broker end */

/* A broker that is ending or dying holds its locks for a moment longer. */
#define LEAVING_MS 5000
#define DEVICE_MS 500
#define MARKED_MS 1000 /* time within which a memory context that ends releases its device */

static int open_lock(const struct znsd *d, const char *suffix, struct zns_err *err)
{
	char path[4096];
	int fd, ret;

	ret = zns_broker_path(d->reg.uuid, suffix, path, sizeof(path));
	if (ret)
		return zns_fail_sys(err, ret, "cannot name a lock file in %s", zns_run_dir());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd >= 0 ? fd : zns_fail_sys(err, -errno, "cannot open %s", path);
}

static bool somebody_listens(const struct znsd *d)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(sa.sun_path, d->server->sock_path);
	return fd >= 0 && !connect(fd, (struct sockaddr *)&sa, sizeof(sa));
}

static int take_broker_lock(struct znsd *d, struct zns_err *err)
{
	int ret;

	d->server->lock_fd = open_lock(d, "broker", err);
	if (d->server->lock_fd < 0)
		return d->server->lock_fd;
	ret = zns_flock_wait(d->server->lock_fd, 0);
	if (ret == -EBUSY && !somebody_listens(d))
		ret = zns_flock_wait(d->server->lock_fd, LEAVING_MS);
	if (ret == -EBUSY)
		return zns_fail(err, ret, "a broker for %s runs already (PID %d)", d->reg.path,
				zns_flock_holder(d->server->lock_fd));
	return ret ? zns_fail_sys(err, ret, "cannot lock the store on %s", d->reg.path) : 0;
}

static int open_device(struct znsd *d, struct zns_err *err)
{
	char have[ZNS_UUID_STR], want[ZNS_UUID_STR];
	int ret;

	/* A client would take -ENOENT for "no broker". */
	ret = zns_broker_lock_device(d->reg.path, DEVICE_MS, &d->server->dev_lock_fd, err);
	if (!ret)
		ret = zns_dev_open(d->reg.path, ZNS_DEV_CLAIM, &d->dev, err);
	if (ret == -ENOENT)
		return err->code = -ENODEV;
	if (ret)
		return ret;
	ret = zns_store_open(d->dev, 0, &d->store, err);
	if (ret)
		return ret;
	if (memcmp(zns_store_uuid(d->store), d->reg.uuid, ZNS_UUID_LEN))
		return zns_fail(
			err, -ENODEV,
			"%s holds store %s, it is registered as %s: run `znsctl register %s`",
			d->reg.path, zns_uuid_format(zns_store_uuid(d->store), have),
			zns_uuid_format(d->reg.uuid, want), d->reg.path);
	return 0;
}

/* Fails if memory contexts of another runtime directory exist. They are not known here, so their
 * zones would be reset. A context that is just ending may have its mark on the device for a moment
 * longer than its lock file. */
static int refuse_strangers(const struct znsd *d, struct zns_err *err)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	for (int ms = 0; !yielding_lives(d) && zns_context_marked(d->server->dev_lock_fd);
	     ms += 10) {
		if (ms >= MARKED_MS)
			return zns_fail(
				err, -EBUSY,
				"%s has memory of running programs whose broker had another "
				"runtime directory than %s: use that one (ZNS_RUN)",
				d->reg.path, zns_run_dir());
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Waits for helpers of the previous broker, which notice its end and stop. Nothing that they write
 * may be reset before that. */
static int wait_for_writers(struct znsd *d, struct zns_err *err)
{
	cleanup_close int fd = open_lock(d, "writers", err);
	int ret;

	if (fd < 0)
		return fd;
	ret = zns_flock_wait(fd, WRITERS_MS);
	if (ret == -EBUSY) {
		int pid = zns_flock_holder(fd);

		if (pid)
			return zns_fail(
				err, ret,
				"%s: a dump of an earlier broker still writes (PID %d) after %d s: try again when it has ended, or end it",
				d->reg.path, pid, WRITERS_MS / 1000);
		return zns_fail(
			err, ret,
			"%s: a dump of an earlier broker still writes after %d s: try again when it has ended",
			d->reg.path, WRITERS_MS / 1000);
	}
	return ret ? zns_fail_sys(err, ret,
				  "cannot wait for the writers of an earlier broker for %s",
				  d->reg.path) :
		     0;
}

/* Drops reservations of dumps that were never committed. */
static void drop_orphan_reservations(struct znsd *d)
{
	size_t i = 0;

	while (i < zns_store_nr_reservations(d->store)) {
		size_t n = zns_store_nr_reservations(d->store);
		cleanup_free char *name = znsd_strdup(
			zns_store_reservation(d->store, i)->container);

		reservation_settle(d, name);
		i += zns_store_nr_reservations(d->store) == n;
	}
}

/* Drops capabilities. Called when everything that needs them is open, before the first thread
 * starts. */
static int drop_rights(const struct znsd *d, struct zns_err *err)
{
	static const int keep[] = { CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN };
	bool emulated = zns_spec_in_file(d->reg.path);

	zns_process_no_network();
	/* Documentation/user/security.md gives the reasons */
	return zns_process_keep_caps(keep, emulated ? 1 : 2, err);
}

int server_start(struct znsd *d, const char *spec, struct zns_err *err)
{
	char run[PATH_MAX];
	int ret;

	policy_init(d);
	ret = dispatch_check(err);
	if (!ret)
		ret = zns_resolve_device(spec, &d->reg, err);
	if (!ret)
		znsd_log_device(&d->reg);
	if (!ret)
		ret = zns_broker_run_dir(err);
	/* A daemon must not keep the directory busy in which it was started, so names are absolute
	 * from here on. */
	if (!ret && (!realpath(zns_run_dir(), run) || setenv("ZNS_RUN", run, 1) || chdir("/") < 0))
		ret = zns_fail_sys(err, -errno, "cannot change to runtime directory %s",
				   zns_run_dir());
	if (ret)
		return ret;
	if (zns_broker_path(d->reg.uuid, "sock", d->server->sock_path,
			    sizeof(d->server->sock_path)))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: too long for a socket",
				zns_run_dir());
	ret = take_broker_lock(d, err);
	if (!ret)
		ret = open_device(d, err);
	if (!ret)
		ret = host_claim(d, err);
	if (!ret)
		ret = wait_for_writers(d, err);
	if (!ret)
		ret = d->readers_fd = open_lock(d, "readers", err);
	if (ret < 0)
		return ret;
	ret = tables_init(d, err);
	if (ret)
		return zns_wrap(err, "%s", d->reg.path);
	yielding_adopt(d);
	ret = refuse_strangers(d, err);
	if (ret)
		return ret;
	readers_check(d);
	restores_load(d);
	history_load(d);
	drop_orphan_reservations(d);
	ret = finisher_new(d, err);
	if (!ret)
		ret = drop_rights(d, err);
	if (!ret)
		ret = alive_start(d, err);
	return ret ? ret : server_listen(d, err);
}

static void close_open_zones(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t i;

	if (zones_refresh(d, 0, d->nr_zones, &err))
		znsd_warn("%s", err.msg);
	for (i = 0; i < d->nr_zones; i++)
		if (!d->zones[i].meta && !d->zones[i].writer && !d->groups[d->zones[i].group].io &&
		    zns_zone_is_open(d->zones[i].z.state) && zns_dev_close_zone(d->dev, i, &err))
			znsd_warn("closing zone %u: %s", i, err.msg);
	if (zns_dev_flush(d->dev, &err))
		znsd_warn("%s", err.msg);
}

/* Releases the drive's reservation. Writers of interrupted dumps may have writes under way, and no
 * other host may get the device before these end; then the reservation is kept. A failed start only
 * releases what it acquired itself; the next broker of this host releases the rest. */
static void unreserve(struct znsd *d)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (!d->server->resv.held || (d->server->listen_fd < 0 && !d->server->resv.fresh))
		return;
	if (!d->lost && yielding_lives(d))
		znsd_warn(
			"memory of running programs is here; the device stays reserved for this host");
	else if (!d->lost && wait_for_writers(d, &err))
		znsd_warn("%s; the device stays reserved for this host", err.msg);
	else
		host_unreserve(d);
}

/* Ends the broker. Memory and descriptors are left to the kernel. */
void server_stop(struct znsd *d)
{
	sweeping_end(d);
	if (d->server->listen_fd >= 0) {
		/* We hold the broker lock, so the socket is ours. A client that connects from now
		 * on finds no broker and starts the next one. */
		unlink(d->server->sock_path);
		close(d->server->listen_fd);
	}
	finisher_free(d);
	history_step(d, true);
	if (d->store && d->zones && d->server->listen_fd >= 0 && !d->lost) {
		host_release(d);
		close_open_zones(d);
	}
	if (d->dev)
		unreserve(d);
	tables_fini(d);
	policy_fini(d);
	restores_free(d);
	history_free(d);
	if (d->store)
		zns_store_close(d->store);
	if (d->dev)
		zns_dev_close(d->dev);
	if (d->readers_fd >= 0)
		close(d->readers_fd);
	if (d->server->dev_lock_fd >= 0)
		close(d->server->dev_lock_fd);
	if (d->server->lock_fd >= 0)
		close(d->server->lock_fd);
}
