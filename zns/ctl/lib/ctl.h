/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_H
#define ZNS_CTL_H
/* znsctl: each command is a function, which returns the exit code. */
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
	const char *args; /* its arguments, for the usage line */
	const char *brief; /* what it does in one line, for the list of commands */
	const char *help; /* its options, one line each */
	int (*run)(const struct ctl_cmd *cmd, int argc, char **argv);
};

/*
 * main() calls ctl_begin() first (0 or -errno), and passes its exit code to ctl_end(), which
 * reports an incomplete output.
 */
int ctl_begin(void);
int ctl_end(const char *name, int code);

/*
 * program.c: replaces this process by another installed program. Returns only if that fails, with
 * the exit code.
 */
int ctl_become(const struct ctl_cmd *cmd, const char *program, char **argv);
/* The main function of a program with these commands. */
int ctl_program(const struct ctl_cmd *const *commands, size_t nr, int argc, char **argv);

/* Options of every command, and their values in struct option. */
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
/* Help texts of these options. */
#define CTL_DEV_HELP "  --dev DEV       the device, if not given as an argument\n"
#define CTL_PICK "ID|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all"
#define CTL_PICK_HELP                                                                   \
	"  DIRECTORY holds a checkpoint's handle; CONTAINER is its name here, or the\n" \
	"  engine's name or id of it\n"                                                 \
	"  --container NAME  all of one container\n"                                    \
	"  --pattern GLOB  all of containers with such names\n"                         \
	"  --all           all of the device\n"
#define CTL_END_OPTIONS          \
	{                        \
		NULL, 0, NULL, 0 \
	}

struct ctl_args {
	bool json;
	/* the device of --dev or of the positional argument DEV; NULL: use the configured one */
	const char *dev;
	int argc; /* the arguments that follow the options */
	char **argv;
	int code; /* the exit code if ctl_getopt returned -2 */
};

/*
 * Returns the next option of the command, -1 after the last one (@args is set then), or -2: return
 * args->code. Refuses empty values and arguments.
 */
int ctl_getopt(const struct ctl_cmd *cmd, int argc, char **argv, const struct option *opts,
	       struct ctl_args *args);

/*
 * options.c: parses all options of a command by a table, which ends with CTL_OPTS_END. If it does
 * not return 0, return args->code. The message for a wrong value may contain %s for the value.
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
		uint64_t *number; /* also for a size in bytes or a duration in seconds */
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

/*
 * If the first argument names a device (emu:…, /dev/…, a registered UUID), moves it to args->dev.
 */
void ctl_take_dev(struct ctl_args *args);

/* For a command that takes only a device: returns 0, or CTL_USAGE after an error message. */
int ctl_only_dev(const struct ctl_cmd *cmd, struct ctl_args *args);

/* Print "znsctl CMD: " and the error, or the given text, on stderr. Return the exit code. */
int ctl_fail(const struct ctl_cmd *cmd, const struct zns_err *err);
int ctl_usage(const struct ctl_cmd *cmd, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int ctl_oom(const struct ctl_cmd *cmd);

/* Finds the device of @spec and connects to its broker, which is started if needed. */
int ctl_connect(const char *spec, struct zns_registered *reg, struct zns_broker *b,
		struct zns_err *err);
/*
 * Finds the device, connects to its broker, sends one request, and disconnects. @resp NULL: drop
 * the answer.
 */
int ctl_call(const char *spec, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err);
/* Gets the list of all checkpoints of the device. */
int ctl_list(const char *spec, ZnsPb__Response **ls, struct zns_err *err);
/* Sends a request on an open connection, and drops the answer. */
int ctl_tell(struct zns_broker *b, ZnsPb__Request *req, struct zns_err *err);
static inline void ctl_free_answer(ZnsPb__Response **r)
{
	if (*r)
		zns_pb__response__free_unpacked(*r, NULL);
}
#define cleanup_answer __attribute__((cleanup(ctl_free_answer)))

/* Asks the device's broker to exit, if one runs. -EBUSY: it has leases. */
int ctl_ask_to_leave(const struct zns_registered *reg, struct zns_err *err);
/*
 * For commands that need the device for themselves: asks a running broker to exit, then takes the
 * device lock. -EBUSY: the broker has leases. Close *lock_fd to unlock.
 */
int ctl_claim_device(const char *path, int *lock_fd, struct zns_err *err);
/*
 * For commands that write to the device then: takes the drive's reservation, if the drive supports
 * reservations. Call zns_resv_leave() before the device is closed.
 */
int ctl_reserve(struct zns_dev *dev, bool take_over, struct zns_resv *r, struct zns_err *err);

/* hold.c: opens a session on the device of @spec. @use: enum zns_session_use. */
int ctl_session_open(struct zns_session *s, const char *spec, unsigned use, struct zns_err *err);
int ctl_ls(struct zns_broker *b, ZnsPb__Response **out, struct zns_err *err);
bool ctl_is_dir(const char *path);
/*
 * Returns the next child of @c in @ls from index *at on; NULL: there are no more. Begin with *at =
 * 0.
 */
const ZnsPb__Checkpoint *ctl_next_child(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c,
					size_t *at);
/*
 * Reads the handle in @dir. *fd: descriptor of the directory, which the caller closes; @fd may be
 * NULL.
 */
int ctl_handle_read(const char *dir, int *fd, ZnsPb__Handle **out, struct zns_err *err);
/*
 * Reads the handle in @dir, and formats the ids of its device and checkpoint (ZNS_UUID_STR bytes
 * each). The caller frees the handle.
 */
int ctl_handle_ids(const char *dir, char *dev, char *id, ZnsPb__Handle **out, struct zns_err *err);

/*
 * One checkpoint, found by id or by its handle's directory, with its session, record and manifest.
 */
struct ctl_hold {
	struct zns_session s;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *c;
	ZnsPb__Manifest *m;
	/*
	 * the handle in the directory on the command line, or NULL; it was checked against the
	 * record
	 */
	ZnsPb__Handle *handle;
	/* the key, set by ctl_hold_key(); NULL: not encrypted, or not loaded */
	struct zns_crypt *crypt;
};
int ctl_hold_open(struct ctl_hold *h, const char *spec, const char *what, struct zns_err *err);
void ctl_hold_close(struct ctl_hold *h);
/* Loads the key of an encrypted checkpoint. Only needed to read its images. */
int ctl_hold_key(struct ctl_hold *h, struct zns_err *err);

/*
 * pick.c: selects checkpoints for ls, show, verify and rm: by ids or their beginnings, directories
 * with a handle, containers, --container, --pattern or --all. Each of these commands fails if an
 * id, a directory or a container does not exist.
 */
#define CTL_ENGINE_ID_MIN 12 /* least digits of a container id of an engine */
#define CTL_RM_BATCH 256 /* most checkpoints that one request removes */
struct ctl_pick {
	const char *container, *pattern;
	bool all;
	int argc;
	char **argv;
	/* by index of the argument; NULL: the argument is not a directory with a handle */
	ZnsPb__Handle **handle;
	/* why the directory has no handle; the argument may be a container's name */
	struct zns_err not_dir;
	char dev[ZNS_UUID_STR];
	struct zns_registered reg;
	/* a command that opens connections of its own later may close this one */
	struct zns_broker broker;
	/* set by a command that needs no list if all ids are complete: @ls is empty then */
	bool ids_suffice;
	ZnsPb__Response *ls; /* Gets the list of all checkpoints of the device. */
	uint8_t (*ids)[ZNS_UUID_LEN]; /* the selected ids, in the catalogue's order */
	size_t nr;
	bool by_id; /* at least one checkpoint was named by its id or handle */
};
/*
 * Takes at most @most arguments, connects, lists the checkpoints and selects. Returns 0, or the
 * exit code after an error message. If a handle names the device, args->dev is set. Always call
 * ctl_pick_end() afterwards.
 */
int ctl_pick_open(const struct ctl_cmd *cmd, struct ctl_args *args, struct ctl_pick *p, int most);
void ctl_pick_end(struct ctl_pick *p);
/* Is @name the container's name on the device, or the name or id that the engine has for it? */
bool ctl_is_of(const ZnsPb__Checkpoint *c, const char *name);
/* The checkpoint with this id. NULL: it is not listed. */
const ZnsPb__Checkpoint *ctl_listed(const ZnsPb__Response *ls, const uint8_t *id);

/* cmd_retain.c: formats a rule, such as "the newest 3, of these those younger than 7d". */
#define CTL_RULE 96
char *ctl_rule(const ZnsPb__Retention *r, char *buf, size_t len);

/*
 * table_text.c: formats @name as one field of a table. Quotes it if it has blanks, and escapes
 * characters that would control a terminal.
 */
#define CTL_NAME 1024
const char *ctl_name(const char *name, char *buf, size_t len);
/* Formats remarks for the end of a checkpoint's line, such as "  pre-dump  pinned  DAMAGED". */
char *ctl_marks(const ZnsPb__Checkpoint *c, const ZnsPb__Response *ls, char *buf, size_t len);
/* number of digits, at least 8, by which all ids differ */
int ctl_id_width(const ZnsPb__Response *ls);
size_t ctl_room(void); /* columns of the terminal; SIZE_MAX: stdout is not a terminal */
/* cuts the line at the terminal's width; other outputs get the whole line */
int ctl_print_cut(char *line);
/*
 * What is printed between begin and end is wrapped at the terminal's width. Continued lines begin
 * at @column; 0: below the text of a line like "  KEY   text". Other outputs get whole lines.
 */
struct ctl_fold {
	FILE *terminal;
	char *text;
	size_t len;
};
void ctl_fold_begin(struct ctl_fold *f);
void ctl_fold_end(struct ctl_fold *f, int column);
/*
 * Prints a blank and @word, in a new line at column @indent if there is no room. *at: the current
 * column.
 */
void ctl_print_word(const char *word, int indent, int *at);

/*
 * For a command that must not be killed halfway: catches SIGINT, SIGTERM and SIGHUP. After the
 * first signal ctl_caught() returns -EINTR. Another signal, at least a second later, kills.
 */
void ctl_catch_signals(void);
int ctl_caught(struct zns_err *err);

/*
 * progress.c: a progress line, shown on a terminal only, and after a second. Any thread may add to
 * it.
 */
struct ctl_progress {
	const char *what;
	uint64_t total, done; /* bytes */
	uint64_t start_ns, last_ns;
	bool tty, shown;
	pthread_mutex_t lock;
};
void ctl_progress_start(struct ctl_progress *p, const char *what, uint64_t total);
void ctl_progress_add(struct ctl_progress *p, uint64_t bytes);
/* erases the line; returns the seconds since the start */
double ctl_progress_end(struct ctl_progress *p);

/* Counts the zones in a state. Implicitly and explicitly open zones are counted as one state. */
uint32_t ctl_zones_in(const ZnsPb__Status *s, enum zns_zone_state state);

/*
 * For all text from outside: escapes characters that would control a terminal. The result is valid
 * until the eighth call after this one.
 */
const char *ctl_text(const char *s);
bool ctl_pinned(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c);
/* Has `znsctl verify` found damage in it? */
bool ctl_damaged(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c);
/*
 * The mark (pinned, damaged) of a listed checkpoint; NULL: none. The list must have been sorted by
 * ctl_marks_sort(), which returns its argument @ret.
 */
const ZnsPb__Mark *ctl_mark_of(const ZnsPb__Response *ls, const ZnsPb__Checkpoint *c);
int ctl_marks_sort(int ret, ZnsPb__Response **ls);
void ctl_print_restore(const ZnsPb__RestoreStat *r); /* prints the end of a line */

/* cmd_verify.c: checks every unit of all images. *bad: number of damaged units. */
int ctl_verify_data(struct zns_dev *dev, const ZnsPb__Manifest *m, struct ctl_progress *p,
		    uint64_t *bad, struct zns_err *err);

/* profile.c: makes a device's profile. Free it with zns_pb__profile__free_unpacked(). */
struct ctl_map {
	/* a file with one group number for each zone, or "i % N"; NULL: not given */
	const char *spec;
	uint32_t zone_write_mibps, zone_read_mibps; /* 0: use the device's own value */
};

/*
 * zone_speed.c: measures the speed of one zone in MiB/s, by the device's own clock: writes and
 * reads it from start to end. *zone: the zone, which is empty before and after. -ENODATA: no zone
 * is empty.
 */
int ctl_measure_zone(struct zns_dev *dev, uint32_t *zone, uint32_t *write_mibps,
		     uint32_t *read_mibps, struct zns_err *err);

/*
 * disk_speed.c: measures the disk below a store in MiB/s: several streams write at once until their
 * data are durable, and read. It uses empty zones for half a second, and leaves them empty.
 */
int ctl_measure_disk(struct zns_dev *dev, uint32_t *write_mibps, uint32_t *read_mibps,
		     struct zns_err *err);
/*
 * Could the store need more blocks than its file system has free? @size: planned bytes of its file;
 * 0: the present ones. @room: free bytes of the file system; UINT64_MAX: the store is not in a
 * file.
 */
bool ctl_is_limited(const char *spec, uint64_t size, uint64_t *room);

int ctl_make_profile(struct zns_dev *dev, const struct ctl_map *map, ZnsPb__Profile **out,
		     struct zns_err *err);

/*
 * cmd_key.c: --encrypt of create and format. The key is loaded before any data are destroyed. @spec
 * NULL: no encryption.
 */
struct ctl_encrypt {
	bool on;
	char spec[4112];
	uint8_t key_id[8];
};
int ctl_encrypt_load(const char *spec, struct ctl_encrypt *e, struct zns_err *err);
/* Configures encryption for a device that was formatted. */
int ctl_encrypt_store(struct zns_dev *dev, const struct ctl_encrypt *e, struct zns_err *err);

/* cmd_format.c */
int ctl_format_device(struct zns_dev *dev, const struct ctl_map *map, bool force,
		      uint8_t uuid[ZNS_UUID_LEN], struct zns_err *err);

#endif
