/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_H
#define ZNS_CTL_H
/* znsctl: one function per command; it returns the exit code. */
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/err.h"
#include "zns/handle.h"
#include "zns/util.h"
#include "zns/reserve.h"
#include "zns/session.h"
#include "print.h"
#include "zns-broker.pb-c.h"

enum { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2 };

struct ctl_cmd {
	const char *name;
	const char *args; /* of the usage line */
	const char *brief; /* one line, for the list of commands */
	const char *help; /* its options, one line each */
	int (*run)(const struct ctl_cmd *cmd, int argc, char **argv);
};

/* First of all in main, 0 or -errno; and with its exit code at the end, since half an answer must
 * not look like one. */
int ctl_begin(void);
int ctl_end(const char *name, int code);

/* Options that every command has; their values in struct option. */
enum { OPT_JSON = 256, OPT_HELP, OPT_DEV, OPT_VERBOSE, OPT_OWN };
#define CTL_COMMON_OPTIONS                          \
	{ "json", no_argument, NULL, OPT_JSON },    \
	{                                           \
		"help", no_argument, NULL, OPT_HELP \
	}
#define CTL_DEV_OPTION                                  \
	{                                               \
		"dev", required_argument, NULL, OPT_DEV \
	}
/* What the help says of them. */
#define CTL_DEV_HELP "  --dev DEV       the device, if not given as an argument\n"
#define CTL_PICK "ID|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all"
#define CTL_PICK_HELP                                                                                             \
	"  DIRECTORY holds a checkpoint's handle; CONTAINER is its name here, or the engine's name or id of it\n" \
	"  --container NAME  all of one container\n"                                                              \
	"  --pattern GLOB  all of containers with such names\n"                                                   \
	"  --all           all of the device\n"
#define CTL_END_OPTIONS          \
	{                        \
		NULL, 0, NULL, 0 \
	}

struct ctl_args {
	bool json;
	const char *dev; /* --dev, or the positional DEV; NULL: as configured */
	int argc; /* what is left after the options */
	char **argv;
	int code; /* of a ctl_getopt that returned -2 */
};

/*
 * One more of the command's own options, -1 at the end (args is set), -2: leave with args->code.
 * Empty values and arguments are refused.
 */
int ctl_getopt(const struct ctl_cmd *cmd, int argc, char **argv, const struct option *opts,
	       struct ctl_args *args);

/*
 * options.c: all options of a command at once. A table of them ends with CTL_OPTS_END. 0, or leave
 * with args->code. What is said of a wrong value may name it (%s).
 */
enum ctl_opt_kind {
	CTL_O_FLAG,
	CTL_O_TEXT,
	CTL_O_NUMBER,
	CTL_O_SIZE,
	CTL_O_DURATION,
	CTL_O_RATE,
	CTL_O_DEV
};
struct ctl_opt {
	const char *name;
	enum ctl_opt_kind kind;
	union {
		bool *flag;
		const char **text;
		uint64_t *number; /* also of a size, in bytes, and of a duration, in seconds */
		uint32_t *rate; /* MiB/s */
	};
	uint64_t min, max;
	const char *wrong;
};
#define CTL_FLAG(n, to)                                       \
	{                                                     \
		.name = (n), .kind = CTL_O_FLAG, .flag = (to) \
	}
#define CTL_TEXT(n, to)                                       \
	{                                                     \
		.name = (n), .kind = CTL_O_TEXT, .text = (to) \
	}
#define CTL_NUMBER(n, to, from, up_to, says)                                                      \
	{                                                                                         \
		.name = (n), .kind = CTL_O_NUMBER, .number = (to), .min = (from), .max = (up_to), \
		.wrong = (says)                                                                   \
	}
#define CTL_SIZE(n, to, from)                                                                      \
	{                                                                                          \
		.name = (n), .kind = CTL_O_SIZE, .number = (to), .min = (from), .max = UINT64_MAX, \
		.wrong = "\"%s\" is no size"                                                       \
	}
#define CTL_DURATION(n, to, from)                                                   \
	{                                                                           \
		.name = (n), .kind = CTL_O_DURATION, .number = (to), .min = (from), \
		.max = UINT64_MAX, .wrong = "\"%s\" is no time: 90, 30m, 12h or 7d" \
	}
#define CTL_RATE(n, to)                                                                          \
	{                                                                                        \
		.name = (n), .kind = CTL_O_RATE, .rate = (to), .wrong = "\"%s\" is no bandwidth" \
	}
#define CTL_PICKS(p)                                                                \
	CTL_TEXT("container", &(p)->container), CTL_TEXT("pattern", &(p)->pattern), \
		CTL_FLAG("all", &(p)->all)
#define CTL_DEV                                  \
	{                                        \
		.name = "dev", .kind = CTL_O_DEV \
	}
#define CTL_OPTS_END         \
	{                    \
		.name = NULL \
	}
int ctl_parse(const struct ctl_cmd *cmd, int argc, char **argv, const struct ctl_opt *table,
	      struct ctl_args *args);

/* If the first argument names a device (emu:…, /dev/…, a registered UUID), take it as args->dev. */
void ctl_take_dev(struct ctl_args *args);

/* For a command that takes nothing but a device: 0, or CTL_USAGE after a line. */
int ctl_only_dev(const struct ctl_cmd *cmd, struct ctl_args *args);

/* "znsctl CMD: line" on stderr. */
int ctl_fail(const struct ctl_cmd *cmd, const struct zns_err *err);
int ctl_usage(const struct ctl_cmd *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int ctl_oom(const struct ctl_cmd *cmd);

/* Resolve, connect to (or start) the broker. */
int ctl_connect(const char *spec, struct zns_registered *reg, struct zns_broker *b,
		struct zns_err *err);
/* The whole of it: resolve, connect, ask, disconnect. @resp NULL: the answer says nothing that is
 * wanted. */
int ctl_call(const char *spec, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);
/* all checkpoints of it */
int ctl_list(const char *spec, ZnsPb__Response **ls, struct zns_err *err);
/* On a connection that is there: a request whose answer says nothing that is wanted. */
int ctl_tell(struct zns_broker *b, ZnsPb__Request *req, struct zns_err *err);
static inline void ctl_free_answer(ZnsPb__Response **r)
{
	if (*r)
		zns_pb__response__free_unpacked(*r, NULL);
}
#define cleanup_answer __attribute__((cleanup(ctl_free_answer)))

/*
 * For commands that need the device alone: ask a running broker to leave, then take the device
 * lock. -EBUSY if the broker has leases. *lock_fd is closed to unlock.
 */
int ctl_claim_device(const char *path, int *lock_fd, struct zns_err *err);
/* For those that then write it: the drive's reservation, if it has such; zns_resv_leave before the
 * device is closed. */
int ctl_reserve(struct zns_dev *dev, bool take_over, struct zns_resv *r, struct zns_err *err);

/* hold.c: a session on the device that @spec means; *s is new. @use: enum zns_session_use. */
int ctl_session_open(struct zns_session *s, const char *spec, unsigned use, struct zns_err *err);
int ctl_ls(struct zns_broker *b, ZnsPb__Response **out, struct zns_err *err);
bool ctl_is_dir(const char *path);
/* The next of @ls after *at that has @c as its parent; NULL: no more. *at is 0 at first. */
const ZnsPb__Checkpoint *ctl_next_child(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c,
					size_t *at);
/* The handle in @dir; *fd, if @fd is not NULL, is the directory, to be closed by the caller. */
int ctl_handle_read(const char *dir, int *fd, ZnsPb__Handle **out, struct zns_err *err);
/* Device and checkpoint that the handle in @dir names, as text (ZNS_UUID_STR each); and the handle,
 * the caller's. */
int ctl_handle_ids(const char *dir, char *dev, char *id, ZnsPb__Handle **out, struct zns_err *err);

/* All of that for one checkpoint, by id or by a directory with its handle, and its manifest. */
struct ctl_hold {
	struct zns_session s;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *c;
	ZnsPb__Manifest *m;
	/* of the directory that was named; or NULL. The record says the same */
	ZnsPb__Handle *handle;
	struct zns_crypt *crypt; /* after ctl_hold_key; NULL: plain, or none asked for */
};
int ctl_hold(struct ctl_hold *h, const char *spec, const char *what, struct zns_err *err);
void ctl_unhold(struct ctl_hold *h);
/* For who reads its images: its key, if it is encrypted. */
int ctl_hold_key(struct ctl_hold *h, struct zns_err *err);

/*
 * pick.c: which checkpoints ls, show, verify and rm mean: ids or beginnings of them, directories
 * with a handle, containers, --container, --pattern or --all. An id, a directory or a container
 * that is not there is an error in each.
 */
#define CTL_ENGINE_ID_MIN 12 /* digits of an engine's id of a container */
struct ctl_pick {
	const char *container, *pattern;
	bool all;
	int argc;
	char **argv;
	ZnsPb__Handle **handle; /* of each argument; NULL: it is no directory with one */
	struct zns_err not_dir; /* why not, of a directory whose name may be a container's too */
	char dev[ZNS_UUID_STR];
	struct zns_registered reg;
	/* a command that goes on with connections of its own may close it */
	struct zns_broker broker;
	ZnsPb__Response *ls; /* all checkpoints of the device */
	uint8_t (*ids)[ZNS_UUID_LEN]; /* what was found, in the catalogue's order */
	size_t nr;
	bool by_id; /* at least one of them was named by its id or its handle */
};
/*
 * Take the arguments, @most of them, connect, list the checkpoints and find those that are meant.
 * 0, or the exit code after a line. A handle's device becomes args->dev. ctl_pick_end follows in
 * every case.
 */
int ctl_pick_open(const struct ctl_cmd *cmd, struct ctl_args *args, struct ctl_pick *p, int most);
bool ctl_picked(const struct ctl_pick *p, const uint8_t *id);
void ctl_pick_end(struct ctl_pick *p);
/* By the name it has on the device, or the engine's name or id of it. */
bool ctl_is_of(const ZnsPb__Checkpoint *c, const char *name);
/* NULL: not there */
const ZnsPb__Checkpoint *ctl_listed(const ZnsPb__Response *ls, const uint8_t *id);

/* cmd_retain.c: "the newest 3, of these those younger than 7d" */
#define CTL_RULE 96
char *ctl_rule(const ZnsPb__Retention *r, char *buf, size_t len);

/* table_text.c: @name as one field of a table: in quotes where it has blanks, without what a
 * terminal would obey. */
#define CTL_NAME 1024
const char *ctl_name(const char *name, char *buf, size_t len);
/* "  pre-dump  pinned": what is special about it, for the end of its line. */
char *ctl_marks(const ZnsPb__Checkpoint *c, const ZnsPb__Response *ls, char *buf, size_t len);
int ctl_id_width(const ZnsPb__Response *ls); /* digits of ids that tell them apart, 8 at least */
int ctl_print_cut(char *line); /* cut to the terminal's width, if it is one */
/* A blank and @word, on a new line that begins at @indent if there is no room for it; *at is the
 * column. */
void ctl_print_word(const char *word, int indent, int *at);

/*
 * For a command that leaves half of something when it is killed: SIGINT, SIGTERM and SIGHUP are
 * remembered; one more after a second kills. ctl_caught: -EINTR after the first.
 */
void ctl_catch_signals(void);
int ctl_caught(struct zns_err *err);

/* progress.c: on a terminal only, after a second. Any thread may add. */
struct ctl_progress {
	const char *what;
	uint64_t total, done; /* bytes */
	uint64_t start_ns, last_ns;
	bool tty, shown;
	pthread_mutex_t lock;
};
void ctl_progress_start(struct ctl_progress *p, const char *what, uint64_t total);
void ctl_progress_add(struct ctl_progress *p, uint64_t bytes);
double ctl_progress_end(struct ctl_progress *p); /* wipes the line; seconds */

/* How many zones are in a state; the two kinds of open are one to the user. */
uint32_t ctl_zones_in(const ZnsPb__Status *s, enum zns_zone_state state);

/*
 * For every table and line: text that somebody else chose, with escapes for what a terminal would
 * obey. Good until eight more were asked for.
 */
const char *ctl_text(const char *s);
bool ctl_pinned(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c);
void ctl_print_restore(const ZnsPb__RestoreStat *r); /* the rest of a line */

/* cmd_verify.c: every unit of all images; *bad counts the damaged ones. */
int ctl_verify_data(struct zns_dev *dev, const ZnsPb__Manifest *m, struct ctl_progress *p,
		    uint64_t *bad, struct zns_err *err);

/* profile.c: malloc'ed, freed with zns_pb__profile__free_unpacked. */
struct ctl_map {
	const char *spec; /* NULL, a file of one group number per zone, or "i % N" */
	uint32_t zone_write_mibps, zone_read_mibps; /* 0: as the device says */
};

/*
 * zone_speed.c: what one zone alone gives when it is written and read from front to back, MiB/s of
 * the device's own clock. Takes an empty zone, *zone, and leaves it empty. -ENODATA: there is none.
 */
int ctl_measure_zone(struct zns_dev *dev, uint32_t *zone, uint32_t *write_mibps,
		     uint32_t *read_mibps, struct zns_err *err);

int ctl_make_profile(struct zns_dev *dev, const struct ctl_map *map, ZnsPb__Profile **out,
		     struct zns_err *err);

/* cmd_key.c: --encrypt of create and format; loaded before anything is destroyed. @spec NULL: not
 * asked for. */
struct ctl_encrypt {
	bool on;
	char spec[4112];
	uint8_t key_id[8];
};
int ctl_encrypt_load(const char *spec, struct ctl_encrypt *e, struct zns_err *err);
/* a formatted device */
int ctl_encrypt_store(struct zns_dev *dev, const struct ctl_encrypt *e, struct zns_err *err);

/* cmd_format.c */
int ctl_format_device(struct zns_dev *dev, const struct ctl_map *map, bool force,
		      uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err);

/* picture.c */
void ctl_picture(const ZnsPb__Response *r);

#endif
