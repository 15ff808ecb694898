/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by all commands: options, errors, the connection to the broker. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include "ctl.h"
#include "zns/context.h"

#define CLAIM_MS 5000
#define INSIST_NS 1000000000ull

int ctl_begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	return zns_std_fds();
}

/*
 * Reports a write error of stdout by the exit code, so that a truncated answer is not taken for
 * complete. If the reader has ended early, as head does, no message is printed.
 */
int ctl_end(const char *name, int code)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int why = fflush(stdout) ? errno : 0;

	if (!why && !ferror(stdout))
		return code;
	if (why != EPIPE && !(poll(&out, 1, 0) == 1 && out.revents & POLLERR))
		fprintf(stderr, "%s: cannot write to standard output%s%s\n", name, why ? ": " : "",
			why ? strerror(why) : "");
	return code ? code : CTL_FAILED;
}

int ctl_fail(const struct ctl_cmd *cmd, const struct zns_err *err)
{
	fprintf(stderr, "znsctl %s: %s\n", cmd->name, err->msg);
	return CTL_FAILED;
}

int ctl_oom(const struct ctl_cmd *cmd)
{
	fprintf(stderr, "znsctl %s: out of memory\n", cmd->name);
	return CTL_FAILED;
}

int ctl_usage(const struct ctl_cmd *cmd, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "znsctl %s: %s; see znsctl %s --help\n", cmd->name, zns_clean(text),
		cmd->name);
	return CTL_USAGE;
}

int ctl_getopt(const struct ctl_cmd *cmd, int argc, char **argv, const struct option *opts,
	       struct ctl_args *args)
{
	const char *letters = "h";
	struct ctl_fold fold;
	int c, at = -1;

	for (const struct option *o = opts; o->name; o++)
		if (!strcmp(o->name, "verbose"))
			letters = "hv";
	while ((c = getopt_long(argc, argv, letters, opts, &at)) != -1) {
		/*
		 * refuse an empty value: "$X" is empty if X is not set, and must never mean "the
		 * default" or "all"
		 */
		if (at >= 0 && opts[at].has_arg == required_argument && optarg && !*optarg) {
			args->code = ctl_usage(cmd, "--%s has an empty value", opts[at].name);
			return -2;
		}
		at = -1;
		switch (c) {
		case OPT_JSON:
			args->json = true;
			break;
		case OPT_DEV:
			args->dev = optarg;
			break;
		case 'v':
			return OPT_VERBOSE;
		case 'h':
		case OPT_HELP:
			ctl_fold_begin(&fold);
			printf("usage: znsctl %s %s\n%s\n\n%s", cmd->name, cmd->args, cmd->brief,
			       cmd->help);
			printf("  --json          machine-readable output\n");
			ctl_fold_end(&fold, 0);
			args->code = CTL_OK;
			return -2;
		case '?':
			args->code = CTL_USAGE;
			return -2;
		default:
			return c;
		}
	}
	for (c = optind; c < argc; c++) {
		if (!*argv[c]) {
			args->code = ctl_usage(cmd, "argument %d is empty", c - optind + 1);
			return -2;
		}
	}
	args->argc = argc - optind;
	args->argv = argv + optind;
	return -1;
}

void ctl_take_dev(struct ctl_args *args)
{
	struct zns_registered reg;
	uint8_t uuid[ZNS_UUID_LEN];
	const char *s = args->argc ? args->argv[0] : NULL;

	if (args->dev || !s)
		return;
	if (!zns_spec_named(s) &&
	    (zns_uuid_parse(s, uuid) || zns_registered_by_uuid(uuid, &reg, NULL)))
		return;
	args->dev = s;
	args->argc--;
	args->argv++;
}

int ctl_only_dev(const struct ctl_cmd *cmd, struct ctl_args *args)
{
	if (!args->dev && args->argc == 1)
		args->dev = *args->argv++, args->argc--;
	return args->argc ? ctl_usage(cmd, "give one device at most") : 0;
}

static volatile sig_atomic_t caught;

/* timeout(1) sends each signal twice at once. So a second signal kills only if it comes later. */
static void on_signal(int sig)
{
	static volatile uint64_t first_ns;
	uint64_t now = zns_mono_ns();

	if (caught && now - first_ns > INSIST_NS) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	if (!caught)
		first_ns = now;
	caught = sig;
}

void ctl_catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

int ctl_caught(struct zns_err *err)
{
	return caught ? zns_fail(err, -EINTR, "interrupted by signal %d", (int)caught) : 0;
}

int ctl_connect(const char *spec, struct zns_registered *reg, struct zns_broker *b,
		struct zns_err *err)
{
	int ret = zns_resolve_device(spec, reg, err);

	return ret ? ret : zns_broker_connect(reg, b, err);
}

int ctl_call(const char *spec, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	struct zns_registered reg;
	struct zns_broker b;
	int ret;

	ret = ctl_connect(spec, &reg, &b, err);
	if (ret)
		return ret;
	ret = resp ? zns_broker_call(&b, req, resp, err) : ctl_tell(&b, req, err);
	zns_broker_close(&b);
	return ret;
}

int ctl_list(const char *spec, ZnsPb__Response **ls, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_ls = req.ls = 1;
	return ctl_marks_sort(ctl_call(spec, &req, ls, err), ls);
}

int ctl_tell(struct zns_broker *b, ZnsPb__Request *req, struct zns_err *err)
{
	cleanup_answer ZnsPb__Response *r = NULL;

	return zns_broker_call(b, req, &r, err);
}

int ctl_ask_to_leave(const struct zns_registered *reg, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct zns_broker b;
	struct pollfd p;
	int ret;

	ret = zns_broker_connect_running(reg, &b, err);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	req.has_quit = req.quit = 1;
	ret = ctl_tell(&b, &req, err);
	if (!ret) {
		p = (struct pollfd){ .fd = b.fd, .events = POLLIN };
		poll(&p, 1, CLAIM_MS);
	}
	zns_broker_close(&b);
	return ret == -EPIPE ? 0 : ret;
}

/* Does this memory context have living processes? It may while no broker runs. */
static int living(void *arg, const uint8_t id[ZNS_UUID_LEN])
{
	struct zns_context *c = arg;
	uint8_t device[ZNS_UUID_LEN];
	cleanup_close int fd = -1;

	memcpy(device, c->device, ZNS_UUID_LEN);
	return !zns_context_open(device, id, 0, c, &fd, NULL) && zns_context_alive(fd);
}

int ctl_claim_device(const char *path, int *lock_fd, struct zns_err *err)
{
	struct zns_registered reg;
	struct zns_context c;
	bool known = !zns_registered_by_path(path, &reg, NULL);
	int ret;

	if (known) {
		memcpy(c.device, reg.uuid, ZNS_UUID_LEN);
		ret = ctl_ask_to_leave(&reg, err);
		if (ret)
			return ret;
	}
	ret = zns_broker_lock_device(path, CLAIM_MS, lock_fd, err);
	if (ret)
		return ret;
	if (known && zns_context_each(reg.uuid, living, &c))
		zns_fail(err, -EBUSY,
			 "%s holds memory of a running program (%s): `znsctl memory detach` first",
			 path, ctl_text(c.container));
	else if (zns_context_marked(*lock_fd))
		zns_fail(err, -EBUSY,
			 "%s holds memory of a running program, of another runtime directory "
			 "(ZNS_RUN): `znsctl memory detach` first",
			 path);
	else
		return 0;
	close(*lock_fd);
	*lock_fd = -1;
	return -EBUSY;
}

int ctl_reserve(struct zns_dev *dev, bool take_over, struct zns_resv *r, struct zns_err *err)
{
	char machine[ZNS_MACHINE_STR];
	int ret = zns_machine_id(machine, err);

	if (!ret)
		ret = zns_resv_open(dev, machine, r, err);
	return ret ? ret : zns_resv_take(r, take_over, NULL, err);
}

const char *ctl_text(const char *s)
{
	static char ring[8][1024];
	static unsigned next;

	return zns_is_printable(s) ?
		       s :
		       zns_escape(s, ring[next++ % ZNS_ARRAY_SIZE(ring)], sizeof(ring[0]));
}

uint32_t ctl_zones_in(const ZnsPb__Status *s, enum zns_zone_state state)
{
	uint32_t n = (size_t)state < s->n_zones_by_state ? s->zones_by_state[state] : 0;

	return state == ZNS_ZONE_IMP_OPEN ? n + ctl_zones_in(s, ZNS_ZONE_EXP_OPEN) : n;
}

void ctl_print_restore(const ZnsPb__RestoreStat *r)
{
	char size[16], when[32], got[48] = "too short to rate";

	if (r->has_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f MiB/s", r->achieved_mibps);
	printf("%s at %s, from %u zone%s of %zu group%s (%u shared), data phase %.2f s, %s\n",
	       zns_format_size(r->bytes, size, sizeof(size)),
	       zns_format_time(r->ended_ns, when, sizeof(when)), r->nr_zones,
	       r->nr_zones == 1 ? "" : "s", r->n_groups, r->n_groups == 1 ? "" : "s",
	       r->shared_groups, (double)r->data_us / 1e6, got);
}
