/* SPDX-License-Identifier: MIT */
#ifndef __CR_ZNS_WIRE_H__
#define __CR_ZNS_WIRE_H__
/*
 * Messages between criu and its helper process (design.md §3), over one SOCK_SEQPACKET socket that
 * all of criu's processes share. One message is one packet: header, payload, file descriptors.
 * Requests that want an answer carry the far end of a fresh socket pair as their first descriptor,
 * so answers cannot reach the wrong process.
 *
 * Both ends come from one build; ZW_VERSION catches a mixed installation.
 */
#include <stdint.h>

#define ZW_VERSION 16
#define ZW_MAX_IOV 1024 /* most iovecs in one message */
#define ZW_MAX_MSG (sizeof(struct zw_hdr) + ZW_MAX_IOV * sizeof(struct zw_iov))
#define ZW_MAX_FDS 4
#define ZW_NAME 64 /* image names, with the NUL */
#define ZW_STR 256 /* option strings, with the NUL */
#define ZW_ID 16 /* bytes of a checkpoint's id */

/* the helper's descriptor of a pipe to its guard; each half second a uint32_t: the deadline, s */
#define ZW_BEAT_FD 4

/* tells the helper that its cgroups are, or will be, those of a container */
#define ZW_LEAVE_CGROUP "--leave-cgroup"

enum zw_op {
	/* payload zw_begin; nr = 1: the command ends with the process that made the socket,
	   whoever else still has it; fds: reply, image directory, those of zw_begin.progress.
	   Answered when admitted */
	ZW_DUMP_BEGIN = 1,
	ZW_RESTORE_BEGIN, /* begins a restore: the same fields */
	/* dump */
	ZW_IMG_FD, /* payload name; fds: memfd with the whole image */
	ZW_IMG_STREAM, /* payload name; fds: pipe, read until its end */
	ZW_PAGES_OPEN, /* image: the number that it gets, 0, 1, …; payload name */
	/* image, pid, nr; payload zw_iov[nr]: memory that does not change until SEAL is answered */
	ZW_PAGES_MEM,
	ZW_PAGES_SEAL, /* image; fds: reply. Answered when all memory has been read */
	/* payload text: an error in one of criu's children; the dump must not be committed */
	ZW_FAILED,
	/* off = µs frozen so far, nr = 1: --lazy-pages; fds: reply. Answered when durable, handle
	   included */
	ZW_COMMIT,
	ZW_WHY, /* fds: reply with the first error the helper knows of, if any */
	/* restore */
	/* image = level, payload name; fds: reply → kind, size, image; a memfd or a pipe with kind
	   ZW_KIND_FD. Level 0 is the checkpoint, put together from its chain if it is incremental.
	   In a dump 1 is its parent, and so on */
	ZW_OPEN,
	/* image, off, nr; payload zw_iov[nr] in the sender's memory; fds: reply, the sender's
	   userfaultfd if it has one for this */
	ZW_READ,
	ZW_DONE, /* fds: reply, with a summary: every task is restored */
	/* image, nr, off = of how many places at most the userfaultfd may cover one each; fds:
	 * reply, memfd with zw_place[nr] in the sender's memory, its userfaultfd if it could be
	 * had. Begins when a byte comes through reply; answered when all pages are
	 * there */
	ZW_FILL,
	/* image, off, pid = the read's number, pad = enum zw_fetch, nr = 1; payload zw_iov; fds:
	   reply → image = that number. A page server: in the sender's memory. A lazy-pages daemon:
	   in the memory of a task that runs; fds: also its userfaultfd → kind: enum zw_fetched */
	ZW_FETCH = 160,
	ZW_GATE, /* before that; fds: reply, memfd with struct zw_gate (zns-gate.h) */
	/* lazy-pages daemon, with zw_begin.record 0: what is recorded of the checkpoint; fds: reply
	   → kind ZW_KIND_FD, a memfd of `size` bytes with zw_first[]; ZW_KIND_NONE: nothing. With
	   record 1: what was fetched so far is recorded; fds: reply, with a summary */
	ZW_FIRST = 195,
	/* dump; off = its size, payload name; fds: a file of somebody else in the image
	 * directory */
	ZW_FILE = 111,
	/* dump */
	/* image; fds: pipe, read until its end: pages that are not in a frozen task */
	ZW_PAGES_STREAM = 90,
	/* pid, nr; payload zw_iov[nr]: areas of its memory that the kernel may write meanwhile */
	ZW_PAGES_UNSTEADY,
	/* live dump */
	/* nr: enum zw_rounds; fds: reply. Prepares to take the memory of the tree; answered when it
	   is time to freeze it. msg: a summary. → kind ZW_KIND_PAGES: written pages are tracked;
	   ZW_KIND_NONE: they are not, here */
	ZW_LIVE_ROUNDS = 180,
	/* pid; fds: reply → kind ZW_KIND_FD: lines and flags of its /proc/PID/smaps; ZW_KIND_NONE:
	   read it yourself */
	ZW_LIVE_SMAPS,
	/* pid, nr; payload name of its pagemap; fds: reply, memfd with zw_area[nr]. The task is
	   frozen. → kind ZW_KIND_NONE: it was not tracked, send its pages as usual; ZW_KIND_PAGES:
	   the helper has them, size: bytes of them all; a memfd with zw_iov of its guard pages, or
	   none: look for them yourself */
	ZW_LIVE_FINAL,
	/* image, pid: this pages image is the one of that task. Its pagemap gets its entries when
	   it comes */
	ZW_LIVE_IMAGE,
	/* pid: the root of the tree; fds: reply. Before ZW_LIVE_ROUNDS, while the tasks run. → kind
	   ZW_KIND_PAGES: memory of some is on zones, and its pager lets the dump have it where it
	   is: ZW_LIVE_ROUNDS and ZW_LIVE_FINAL are to be asked; ZW_KIND_NONE: there is no pager */
	ZW_MEM_BEGIN = 155,
	/* pid; payload one zw_iov; fds: reply → kind ZW_KIND_PAGES: this area is the pager's */
	ZW_MEM_OWNS,
	/* sender of a dump to a page server: the helper tracks and reads memory, criu sends it */
	/* pid, nr: enum zw_rounds; payload zw_send; fds: reply. Answered when it is time to freeze
	   the tasks. → kind ZW_KIND_PAGES: written pages are tracked, and a memfd with struct
	   zw_chunk[ZW_CHUNKS]; ZW_LIVE_SMAPS and ZW_LIVE_FINAL are for it, too. ZW_KIND_NONE: no
	   tracker, the helper is of no use */
	ZW_SEND_BEGIN = 190,
	/*
	 * pid, image: fill the chunk. Reply: size: runs in the chunk, 0: there are no more. kind
	 * ZW_KIND_NONE: the helper does not have this task's pages
	 */
	ZW_SEND_PAGES,
	ZW_SEND_DONE, /* fds: reply. The page server has committed */
	/* neither */
	ZW_CHECK = 110, /* payload --zns-dev or ""; fds: reply. Can a dump begin? */
	/* page server: as ZW_DUMP_BEGIN, pid 0; pages images come as ZW_IMG_STREAM */
	ZW_RECEIVE_BEGIN = 100,
};

struct zw_hdr {
	uint32_t version;
	uint32_t op;
	uint32_t image;
	uint32_t nr;
	int32_t pid;
	uint32_t pad;
	uint64_t off;
};

struct zw_iov {
	uint64_t base;
	uint64_t len;
};

/* Bytes: below, to cover a place with the userfaultfd costs as much as it saves. */
#define ZW_COVER_MIN (256u << 10)

/* A part of an image, and its place in memory. */
struct zw_place {
	uint64_t off;
	uint64_t base;
	uint64_t len;
};

/* Private memory of a frozen task, for ZW_LIVE_FINAL; in order of addresses. */
#define ZW_AREA_WHOLE 1u /* copy it all, whatever its pages are (the vDSO) */
#define ZW_AREA_LAZY 2u /* a lazy restore may bring it when the task runs */
struct zw_area {
	uint64_t start, end;
	uint64_t how; /* ZW_AREA_* */
};

/* A part of a pages image to be fetched before the tasks run. In the order to do so. */
#define ZW_FIRST_LEN (512u << 10) /* at most so long, and in one such piece of the image */
struct zw_first {
	uint64_t image; /* as in ZW_FETCH */
	uint64_t off, len;
};

/*
 * From the lazy-pages daemon to the pager of a memory context, zns-mem, which it starts: packets on
 * a SOCK_SEQPACKET socket. The pager answers with a zw_reply when it is ready for them, and when it
 * has the last one and serves all processes.
 */
struct zw_given {
	int32_t pid; /* as the daemon sees it; 0: that was all */
	uint32_t image, nr;
	uint32_t pad;
	/* fds: the process's userfaultfd, a file with zw_place[nr] of what it lacks, in order of
	 * addresses */
};

enum zw_rounds {
	ZW_ROUNDS_COPY = 1, /* copy memory while the tasks run; to a page server: after the freeze
			     */
	ZW_ROUNDS_SMAPS = 2, /* the commit follows the thaw */
	ZW_ROUNDS_TRACK = 4, /* pages that the parent has may stay there */
	ZW_ROUNDS_KEEP = 8, /* the tasks run on: keep track of them for the next dump */
};

/* Whether a dump is live, flags. The helper decides where criu was not told. */
enum zw_live {
	ZW_LIVE_ON = 1, /* --zns-live */
	ZW_LIVE_SLOW_FAILS = 2, /* a task that writes faster than we copy fails the dump */
	ZW_LIVE_SAID = 4, /* the option was given; else `live` of zns.conf counts */
	ZW_LIVE_AUTO = 8, /* --zns-live=auto */
	ZW_LIVE_CAN = 16, /* it is of a kind that can be live */
	ZW_LIVE_RUNS_ON = 32, /* it leaves its tasks running */
};

struct zw_begin {
	int32_t pid; /* the dumped task; 0 on restore */
	uint32_t separate_metadata; /* 1: --zns-separate-metadata */
	char dev[ZW_STR]; /* --zns-dev or "" */
	char container[ZW_STR];
	char checkpoint[ZW_STR];
	char alloc[32];
	char admission[32];
	char qos[32];
	char stripe[32];
	char qos_max[32];
	char weight[32];
	char cgroup[32]; /* --zns-cgroup or "" */
	uint32_t progress; /* enum zw_progress */
	uint32_t timeout_s; /* seconds of --timeout, which is for the whole dump; 0: not given */
	char parent[ZW_STR]; /* --zns-parent or "" */
	/* 1: the image directory's link `parent` leads to the parent's handle */
	uint32_t parent_dir;
	uint32_t pre_dump; /* 1 */
	uint32_t live; /* enum zw_live */
	uint32_t record; /* 1: the lazy-pages daemon records the pages touched first */
	/* 1: a restore whose pages a lazy-pages daemon reads, by its own helper; a dump whose pages
	   stay in the tasks, which serve them to another host */
	uint32_t half;
};

struct zw_send {
	/* the checkpoint that the page server writes, and its parent; all zero: none */
	uint8_t id[ZW_ID], parent[ZW_ID];
};

/* Pages of a task, in order of addresses. Those that the parent does not have are in the chunk's
 * data, one after another. */
struct zw_run {
	uint64_t vaddr, len;
	uint64_t parent; /* 1: it has them */
};

#define ZW_CHUNKS 2 /* two chunks: one is filled while the other is sent */
#define ZW_CHUNK_RUNS 8192
#define ZW_CHUNK_BYTES (2u << 20)
struct zw_chunk {
	struct zw_run run[ZW_CHUNK_RUNS];
	uint8_t data[ZW_CHUNK_BYTES];
};

/* Places for progress; a descriptor for each, in this order. */
enum zw_progress {
	ZW_PROGRESS_TTY = 1, /* one line, again and again */
	ZW_PROGRESS_JSON = 2, /* a line of JSON each half second */
};

enum zw_fetch {
	ZW_FETCH_BACKGROUND,
	ZW_FETCH_FAULT, /* a task waits for it: it goes first */
	ZW_FETCH_FIRST, /* the tasks do not run before it is there */
};

enum zw_fetched {
	ZW_FETCH_THERE, /* sent when all pages are in the task */
	ZW_FETCH_LACKS, /* some may not be: their places are others now, or an event waits */
	ZW_FETCH_GONE, /* the task's memory is gone */
};

/*
 * The answer to ZW_RESTORE_BEGIN brings a memfd with the small images of the checkpoint, or none.
 * An image with off 0 exists, but has to be opened (ZW_OPEN).
 */
struct zw_bundle_image {
	char name[ZW_NAME];
	uint64_t off, len; /* bytes, from the beginning of the memfd */
};
struct zw_bundle {
	uint32_t nr;
	uint32_t complete; /* 1: every image has an entry */
	struct zw_bundle_image image[]; /* sorted by name */
};

enum zw_kind {
	ZW_KIND_NONE,
	ZW_KIND_FD, /* the descriptor is the image */
	ZW_KIND_PAGES, /* read it with ZW_READ */
	ZW_KIND_POST_COPY = 100, /* ZW_RESTORE_BEGIN only: the checkpoint lacks its lazy pages */
	ZW_KIND_LIVE, /* ZW_DUMP_BEGIN only: the dump is live, */
	ZW_KIND_DURABLE, /* and commits before the tasks run on */
};

struct zw_reply {
	int32_t code; /* 0 or negative errno */
	uint32_t kind;
	uint32_t image;
	uint32_t warn; /* msg is a warning */
	uint64_t size; /* bytes; on begin of a dump: checkpoints in the chain of its parents */
	/*
	 * reply to the begin of a dump: its id and its parent (all zero: none); to the begin of a
	 * restore: the checkpoint, and its device in @parent
	 */
	uint8_t id[ZW_ID], parent[ZW_ID];
	char msg[512]; /* code != 0: one line for the user; on begin and commit: a summary */
};

#endif
