// SPDX-License-Identifier: GPL-2.0-only
/* znsctl: the administrator's tool. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include "ctl.h"
#include "zns-version.h"

#define DEV_HELP "  --dev DEV       the device, if not given as an argument\n"
#define PICK "ID|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all"
#define PICK_HELP \
	"  DIRECTORY holds a checkpoint's handle; CONTAINER is its name here, or the engine's name or id of it\n" \
	"  --container NAME  all of one container\n" \
	"  --pattern GLOB  all of containers with such names\n" \
	"  --all           all of the device\n"

static const struct ctl_cmd commands[] = {
	{ "create", "emu:PATH [OPTIONS]", "make an emulated zoned device, format and register it",
	  "  --profile NAME          start from a preset\n"
	  "  --channels N, --ways N  dies = channels x ways\n"
	  "  --zones N, --zone-size SIZE, --zone-capacity SIZE, --block-size N\n"
	  "  --max-open N, --max-active N   0: no limit\n"
	  "  --map interleaved|permuted:SEED|shared   which die a zone sits on\n"
	  "  --timing on|off         the NAND timing model\n"
	  "  --die-write-bw MIBPS, --die-read-bw MIBPS, --channel-bw MIBPS\n"
	  "  --program-unit SIZE, --buffer-units N, --command-us N, --reset-us N, --controller-bw MIBPS|none,\n"
	  "  --gc-every SIZE, --gc-stall-ms N       the timing model's other parameters\n"
	  "  --prealloc allocated|written|sparse    how the file's space is got; --sparse is short for the last\n"
	  "  --no-format     only create and register\n"
	  "  --encrypt KEYSPEC   its checkpoints will be encrypted: file:PATH or keyring:DESCRIPTION\n"
	  "  --default       make it the default device\n"
	  "  --force         replace an existing device\n",
	  cmd_create },
	{ "format", "DEV [OPTIONS]", "write an empty store on a device and register it",
	  "  --map FILE|\"i % N\"     which zones share a die, if the device does not say: a file with one group\n"
	  "                          number per zone, or zone index modulo N\n"
	  "  --zone-write-bw MIBPS|measure, --zone-read-bw MIBPS   the rates of one zone; a real device is measured\n"
	  "                          if they are not given\n"
	  "  --encrypt KEYSPEC   its checkpoints will be encrypted: file:PATH or keyring:DESCRIPTION\n"
	  "  --default       make it the default device\n"
	  "  --force         even if it holds checkpoints\n",
	  cmd_format },
	{ "register", "DEV", "register a formatted device, for instance one from another host",
	  "  --take-over     take it over from another host that no longer has it\n"
	  "  --default       make it the default device\n", cmd_register },
	{ "unregister", "DEV|UUID", "forget a device; what it holds stays", "", cmd_unregister },
	{ "probe", "[DEV] [OPTIONS]", "find out by measuring which zones share a die or a channel, and how fast a zone is",
	  "  --verify        only test a sample against what is stored; exit code 1 if it no longer holds\n"
	  "  --sample N      so many zones (with --verify)\n"
	  "  --resume        go on with an interrupted probe\n"
	  "  --force         store what was found although it is doubted\n"
	  "  --budget SIZE   write at most so much; default: the larger of 1 % of the capacity and 8 units per zone\n"
	  "  --unit SIZE     the drive's program unit; default 192K\n"
	  "  --dry-run       only say what would be done\n" DEV_HELP,
	  cmd_probe },
	{ "groups", "[DEV]", "groups of zones that share a die", DEV_HELP, cmd_groups },
	{ "status", "[DEV]|--all", "the device, its space, reservations and leases",
	  "  --all           the space of every registered device, as df\n" DEV_HELP, cmd_status },
	{ "ls", "[DEV] [" PICK "] [-v]", "checkpoints",
	  PICK_HELP
	  "  -v, --verbose   whole ids, zones and groups, the engine's id and image, parents\n"
	  "  Flags: i incremental, m pre-dump (memory only), o pages only, l post-copy (dump --lazy-pages), e encrypted,\n"
	  "  p pinned. MiB/s: asked for/achieved.\n" DEV_HELP,
	  cmd_ls },
	{ "show", "[DEV] " PICK " [-v]", "one checkpoint, its images and where they are; or the tree of a container",
	  PICK_HELP
	  "  -v, --verbose   of a tree: each image\n" DEV_HELP, cmd_show },
	{ "verify", "[DEV] " PICK, "read and check every byte of checkpoints", PICK_HELP DEV_HELP, cmd_verify },
	{ "export", "[DEV] ID|DIRECTORY DIR|FILE.tar|FILE.tgz|- [--flatten]", "a checkpoint as a plain CRIU image directory or archive of one",
	  "  ID may be the beginning of one, or a directory that holds a handle\n"
	  "  DIR is new or empty; FILE.tgz (or .tar.gz) is compressed; - is a tar archive on standard output\n"
	  "  --flatten       write an incremental checkpoint as if it had been dumped in full\n"
	  "  --metadata-only leave out the images of memory pages\n" DEV_HELP, cmd_export },
	{ "mount", "[DEV] ID|DIRECTORY MOUNTPOINT", "a checkpoint's images as read-only files, for crit and other tools; umount ends it",
	  "  ID may be the beginning of one, or a directory that holds a handle\n"
	  "  MOUNTPOINT is an empty directory, no link, and none of the system's\n"
	  "  --foreground    stay until it is unmounted\n" DEV_HELP, cmd_mount },
	{ "import", "[DEV] DIR|FILE.tar|FILE.tgz [OPTIONS]", "a plain CRIU image directory, or archive of one, becomes a checkpoint on zones",
	  "  --container NAME  whose checkpoint it is; otherwise the directory's or archive's name\n"
	  "  --qos MIBPS       bandwidth to write with, as --zns-qos of criu\n"
	  "  --admission share|wait[=S]|reject   as --zns-admission of criu\n"
	  "  --handle NEWDIR   write a handle there, to restore from\n"
	  "  --parent ID       of an incremental dump: the checkpoint that its parent was imported as\n"
	  "  --join            DIR is a page server's, with the sender's other images copied into it: add these images\n"
	  "                    to the checkpoint that has the pages\n" DEV_HELP, cmd_import },
	{ "flatten", "[DEV] ID|DIRECTORY [--qos MIBPS]", "write an incremental checkpoint anew without its parents, under its id",
	  "  --qos MIBPS     bandwidth to write with, as --zns-qos of criu\n" DEV_HELP, cmd_flatten },
	{ "fsck", "[DEV] [--repair|--rebuild [--force]] [--dry-run]", "check the catalogue; write a new one from what can still be read",
	  "  --repair        if it is damaged: from its readable records and the zones\n"
	  "  --rebuild       also if it is gone: from the zones\n"
	  "  --force         rebuild one that can be read\n  --dry-run       only say what would be found\n"
	  "  --map FILE|\"i % N\", --zone-write-bw MIBPS, --zone-read-bw MIBPS   as for format, if the profile is lost\n" DEV_HELP,
	  cmd_fsck },
	{ "zones", "[DEV]", "zones: a table, or a picture on a terminal",
	  "  --table         a table, also on a terminal\n  --picture       a picture, also elsewhere\n" DEV_HELP, cmd_zones },
	{ "gc", "[DEV] [--dry-run] [--grace TIME] [--compact] [--unjoined TIME]", "sweep what container runtimes left, apply retention, reset garbage zones",
	  "  --grace TIME    remove what a runtime has left only after its owner was missing this long\n"
	  "                  (default 1h; 90, 30m, 12h, 7d)\n"
	  "  --compact       afterwards do what `znsctl compact` does\n"
	  "  --unjoined TIME also remove pages that a page server received this long ago and that nobody joined\n"
	  "  --dry-run       only list what and why\n" DEV_HELP, cmd_gc },
	{ "compact", "[DEV] [--dry-run] [--below PERCENT] [--rate MIBPS] [--no-wait]", "empty zones with little live data by moving it together",
	  "  --below PERCENT empty zones that are live to this part at most (default 25)\n"
	  "  --rate MIBPS    go no faster than this\n"
	  "  --no-wait       do not wait for dumps and restores on the same dies, but slow them down\n"
	  "  --dry-run       only list which zones, and how many would be free\n" DEV_HELP, cmd_compact },
	{ "retain", "[DEV] [CONTAINER --keep N|--ttl TIME|--off]", "set how many checkpoints of a container stay; without arguments, list the rules",
	  "  --keep N        keep the newest N\n  --ttl TIME      keep those that are younger than this (90, 30m, 12h, 7d)\n"
	  "  --off           end the rule\n" DEV_HELP, cmd_retain },
	{ "pin", "[DEV] ID...", "protect checkpoints: rm, gc and retention leave them alone", DEV_HELP, cmd_pin },
	{ "unpin", "[DEV] ID...", "undo pin", DEV_HELP, cmd_unpin },
	{ "rm", "[DEV] ID...|DIRECTORY|CONTAINER|--container NAME|--pattern GLOB|--all",
	  "remove checkpoints; removing one twice, by its whole id, is no error",
	  PICK_HELP
	  "  --secure        also erase every copy of their keys on the device; for encrypted checkpoints only\n"
	  "  --dry-run       only say what would be removed\n" DEV_HELP, cmd_rm },
	{ "key", "create FILE|show [KEYSPEC] [DEV]|use KEYSPEC [DEV]|off [DEV]|rotate KEYSPEC [DEV]|plain accept|refuse [DEV]", "encryption keys, and which one a device uses for new checkpoints",
	  "  create FILE     a new random key, for root only\n"
	  "  show            the key of a device, or with KEYSPEC (file:PATH or keyring:DESCRIPTION) its fingerprint\n"
	  "  use KEYSPEC     from now on the device's new checkpoints are encrypted with it\n"
	  "  off             from now on they are plain\n"
	  "  rotate KEYSPEC  wrap the keys of all checkpoints with another one\n"
	  "  plain WORD      accept: this machine restores checkpoints that are not encrypted, too; refuse: it does not\n" DEV_HELP, cmd_key },
	{ "reserve", "[DEV] NAME --groups N|--channels N", "keep groups for normal I/O: no dump gets them",
	  "  --groups N      so many groups\n  --channels N    all groups of so many channels\n" DEV_HELP, cmd_reserve },
	{ "release", "[DEV] NAME", "end a reservation", DEV_HELP, cmd_release },
	{ "reset", "[DEV] --zone N...|--all-garbage", "reset zones that hold nothing live",
	  "  --zone N        this zone; may be given several times\n  --all-garbage   all zones without live data\n"
	  "  --dry-run       only say which would be reset\n" DEV_HELP, cmd_reset },
	{ "metrics", "[--output FILE]", "figures of all registered devices, for Prometheus or as JSON",
	  "  --output FILE   replace a file, for the node exporter's textfile collector\n", cmd_metrics },
	{ "docker", "COMMAND ...", "Docker's checkpoints on zones", "  znsctl docker --help lists the commands\n", cmd_docker },
};

static void usage(FILE *f)
{
	size_t i;

	fprintf(f, "usage: znsctl COMMAND [DEV] [OPTIONS]\n"
		   "The checkpoint store on zoned devices. DEV is emu:PATH or /dev/..., or a registered device's UUID; it may be\n"
		   "left out where $ZNS_DEV or the configuration names it. Every command takes --help (-h) and --json.\n"
		   "A checkpoint's ID may be cut down to its first digits, %d at least, as long as they name only one.\n\n",
		ZNS_ID_MIN);
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++)
		fprintf(f, "  %-12s%s\n", commands[i].name, commands[i].brief);
	fprintf(f, "\n`znsctl help COMMAND` explains one, `znsctl --version` says which build this is.\n"
		   "Exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

/* Half an answer must not look like one. A reader that left early, as head does, knows that it did. */
static int flushed(const char *name, int code)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	int why = fflush(stdout) ? errno : 0;

	if (!why && !ferror(stdout))
		return code;
	if (why != EPIPE && !(poll(&out, 1, 0) == 1 && out.revents & POLLERR))
		fprintf(stderr, "%s: cannot write to standard output%s%s\n", name, why ? ": " : "", why ? strerror(why) : "");
	return code ? code : CTL_FAILED;
}

int main(int argc, char **argv)
{
	char name[64], help[] = "--help";
	size_t i;

	if (zns_std_fds())
		return CTL_FAILED;
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("znsctl: ZNS-CRIU %s\n", ZNS_VERSION);
		return flushed("znsctl", CTL_OK);
	}
	/* `help CMD …` is `CMD … --help`. */
	if (!strcmp(argv[1], "help") && argc > 2 && argv[2][0] != '-') {
		memmove(argv + 1, argv + 2, (argc - 2) * sizeof(*argv));
		argv[argc - 1] = help;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return flushed("znsctl", CTL_OK);
	}
	for (i = 0; i < ZNS_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		/* So that getopt's own complaints name the command. */
		snprintf(name, sizeof(name), "znsctl %s", argv[1]);
		argv[1] = name;
		return flushed(name, commands[i].run(&commands[i], argc - 1, argv + 1));
	}
	fprintf(stderr, "znsctl: no command \"%.40s\"; see znsctl --help\n", ctl_text(argv[1]));
	return CTL_USAGE;
}
