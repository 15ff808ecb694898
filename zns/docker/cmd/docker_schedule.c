/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * docker schedule: periodic checkpoints, by a systemd timer or by a process that keeps running
 * (--loop)
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "docker_cmd.h"
#include "zns/safeopen.h"

#define YEAR_S (365 * 86400)
#define WANTED "CONTAINER --every 60s [--keep 1 to 10000] [--loop [--count N]] is wanted"
#define UNIT_DIR "/etc/systemd/system"

static bool have_systemd(void)
{
	struct stat st;

	return !stat("/run/systemd/system", &st) && S_ISDIR(st.st_mode);
}

static int systemctl(const char *a, const char *b, const char *c, struct zns_err *err)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execlp("systemctl", "systemctl", "--quiet", a, b, c, NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return zns_fail(err, -EIO, "systemctl %s %s%s%s failed", a, b ? b : "",
				c ? " " : "", c ? c : "");
	return 0;
}

static int write_unit(const char *name, const char *suffix, const char *text, struct zns_err *err)
{
	char path[512];
	int ret;

	snprintf(path, sizeof(path), UNIT_DIR "/zns-docker-%s.%s", name, suffix);
	ret = zns_replace_file(AT_FDCWD, path, text, strlen(text), 0644);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", path) : 0;
}

static int make_timer(const char *container, const char *host, uint64_t every, unsigned keep,
		      struct zns_err *err)
{
	cleanup_free char *service = NULL, *timer = NULL;
	char self[PATH_MAX], unit[256];
	ssize_t n = zns_read_link(AT_FDCWD, "/proc/self/exe", self, sizeof(self));
	int ret;

	if (n <= 0)
		return zns_fail_sys(err, (int)n, "cannot read /proc/self/exe");
	/*
	 * systemd does not start a oneshot service that still runs, so if a checkpoint takes longer
	 * than the period, the next one is delayed.
	 */
	ret = docker_unit_service(container, self, host, keep, &service, err);
	if (ret)
		return ret;
	if (asprintf(&timer,
		     "[Unit]\nDescription=Checkpoints of container "
		     "%s\n\n[Timer]\nOnActiveSec=%llu\nOnUnitInactiveSec=%llu\n"
		     "AccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n",
		     container, (unsigned long long)every, (unsigned long long)every) < 0)
		return zns_fail(err, -ENOMEM, "out of memory");
	ret = write_unit(container, "service", service, err);
	if (!ret)
		ret = write_unit(container, "timer", timer, err);
	snprintf(unit, sizeof(unit), "zns-docker-%s.timer", container);
	if (!ret)
		ret = systemctl("daemon-reload", NULL, NULL, err);
	if (!ret)
		ret = systemctl("enable", "--now", unit, err);
	return ret;
}

/* A failure does not end the loop: the container may be stopped for a while. */
static int loop(const struct ctl_cmd *cmd, const char *host, const char *container, uint64_t every,
		unsigned keep, uint64_t count)
{
	uint64_t next = zns_mono_ns(), done, failed = 0;

	for (done = 0; !count || done < count; done++) {
		struct docker_ask ask = { .exit = false };
		struct zns_err err = ZNS_ERR_INIT;
		struct docker_daemon d = { 0 };
		struct docker_target t = { 0 };
		char name[64];
		int ret;

		while (zns_mono_ns() < next)
			usleep((useconds_t)zns_min((next - zns_mono_ns()) / 1000 + 1,
						   (uint64_t)500000));
		next = zns_mono_ns() + every * 1000000000ull;
		docker_time_name(DOCKER_AUTO_PREFIX, name, sizeof(name));
		ask.name = name;
		ret = docker_open(&d, host, container, &t, &err);
		if (!ret)
			ret = docker_make_checkpoint(&d, &t, &ask, &err);
		if (!ret)
			ret = docker_thin_out(&d, &t.c, DOCKER_AUTO_PREFIX, NULL, keep, &err);
		if (ret) {
			failed++;
			ctl_fail(cmd, &err);
		} else {
			printf("%s\n", name);
			fflush(stdout);
		}
		docker_close(&d, &t);
	}
	return failed ? CTL_FAILED : CTL_OK;
}

int docker_schedule(const struct ctl_cmd *cmd, int argc, char **argv)
{
	uint64_t every = 0, keep = 5, count = 0;
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	struct docker_daemon d = { 0 };
	struct docker_target t = { 0 };
	const char *host = NULL;
	bool stay = false;
	int ret;
	const struct ctl_opt opts[] = { { .name = "every",
					  .kind = CTL_O_DURATION,
					  .number = &every,
					  .min = 1,
					  .max = YEAR_S,
					  .wrong = WANTED },
					CTL_NUMBER("keep", &keep, 1, 10000, WANTED),
					CTL_FLAG("loop", &stay),
					CTL_NUMBER("count", &count, 1, 1000000000, WANTED),
					CTL_TEXT("host", &host),
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1 || !every || (count && !stay))
		return ctl_usage(cmd, WANTED);
	if (stay)
		return loop(cmd, host, args.argv[0], every, (unsigned)keep, count);
	if (!have_systemd()) {
		zns_fail(&err, -ENOSYS, "systemd does not run here: use --loop");
		return ctl_fail(cmd, &err);
	}
	ret = docker_open(&d, host, args.argv[0], &t, &err);
	if (!ret && !docker_daemon_is_ours(&d, t.runtime))
		ret = zns_fail(&err, -EINVAL, "container %s does not run with runtime zns",
			       t.c.name);
	if (!ret)
		ret = make_timer(t.c.name, host, every, (unsigned)keep, &err);
	if (!ret)
		printf("zns-docker-%s.timer: a checkpoint every %llu s, the newest %llu are kept\n",
		       t.c.name, (unsigned long long)every, (unsigned long long)keep);
	docker_close(&d, &t);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

int docker_unschedule(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	char unit[256], path[512];
	int ret;
	const struct ctl_opt opts[] = { CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc != 1 || !docker_good_name(args.argv[0]))
		return ctl_usage(cmd, "a container's name is wanted");
	snprintf(unit, sizeof(unit), "zns-docker-%s.timer", args.argv[0]);
	snprintf(path, sizeof(path), UNIT_DIR "/%s", unit);
	if (access(path, F_OK)) {
		printf("container %s has no schedule\n", args.argv[0]);
		return CTL_OK;
	}
	ret = have_systemd() ? systemctl("disable", "--now", unit, &err) : 0;
	if (ret)
		return ctl_fail(cmd, &err);
	unlink(path);
	snprintf(path, sizeof(path), UNIT_DIR "/zns-docker-%s.service", args.argv[0]);
	unlink(path);
	if (have_systemd())
		systemctl("daemon-reload", NULL, NULL, &err);
	printf("container %s has no schedule any more\n", args.argv[0]);
	return CTL_OK;
}
