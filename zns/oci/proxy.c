/* SPDX-License-Identifier: GPL-2.0-only */
/* See proxy.h. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "../ctl/lib/ctl.h"
#include "proxy.h"
#include "skopeo.h"
#include "zns/json.h"

#define ITS_FD 3 /* the number of skopeo's end of the socket in its process */
#define PACKET KIB(64)
#define MANIFEST_MAX MIB(4)
#define VERSION "0.2."

struct ctl_proxy {
	int sock, said; /* @said: a pipe from skopeo's standard error */
	pid_t pid;
	struct ctl_patience *patience;
	int64_t image;
	int64_t pipe; /* number of the pipe that was not finished yet; 0: none */
	char packet[PACKET + 1];
};

/* The last line of skopeo's standard error; if there is none, @what. */
static const char *words(struct ctl_proxy *p, const char *what)
{
	ssize_t n = pread(p->said, p->packet, PACKET, 0);

	if (n <= 0)
		return what;
	p->packet[n] = 0;
	return skopeo_words(p->packet);
}

static int send_packet(struct ctl_proxy *p, struct json_object *ask, struct zns_err *err)
{
	const char *text = ask ? json_object_to_json_string_ext(ask, JSON_C_TO_STRING_PLAIN) : NULL;
	ssize_t n = text ? send(p->sock, text, strlen(text), MSG_NOSIGNAL) : -1;

	json_object_put(ask);
	return n < 0 ? zns_fail(err, -EIO, "skopeo failed: %s",
				ctl_text(words(p, "it has ended"))) :
		       0;
}

/* Returns the descriptor that came with a packet, or -1. */
static int take_fd(struct msghdr *m)
{
	struct cmsghdr *h = CMSG_FIRSTHDR(m);
	int fd;

	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS ||
	    h->cmsg_len < CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd;
}

/* The caller owns *value and *fd; *fd is -1 if none came. */
static int take_answer(struct ctl_proxy *p, struct json_object **value, int *fd,
		       struct zns_err *err)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { p->packet, PACKET };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.room,
			    .msg_controllen = sizeof(control.room) };
	struct json_object *j = NULL;
	ssize_t n;
	int ret;

	*value = NULL;
	*fd = -1;
	if (ctl_patience_wait(p->patience, p->sock))
		return ctl_patience_fail(p->patience, "the registry sent", err);
	do
		n = recvmsg(p->sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*fd = n > 0 ? take_fd(&m) : -1;
	if (n <= 0)
		return zns_fail(err, -EIO, "skopeo failed: %s", ctl_text(words(p, "it has ended")));
	p->packet[n] = 0;
	ret = zns_json_parse("skopeo's answer", (const uint8_t *)p->packet, (size_t)n, &j, err);
	if (!ret && !json_object_get_boolean(zns_json_get(j, "success"))) {
		const char *why = zns_json_str(j, "error");

		ret = zns_fail(err, -EIO, "skopeo failed: %s",
			       ctl_text(why ? why : "it does not say why"));
	}
	if (!ret) {
		*value = json_object_get(zns_json_get(j, "value"));
		p->pipe = json_object_get_int64(zns_json_get(j, "pipeid"));
	} else if (*fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	json_object_put(j);
	return ret;
}

/* Makes a request. @args: an array, which the request owns from now on. */
static struct json_object *request(const char *method, struct json_object *args)
{
	struct json_object *j = json_object_new_object();

	if (!j || !args) {
		json_object_put(args);
		json_object_put(j);
		return NULL;
	}
	json_object_object_add(j, "method", json_object_new_string(method));
	json_object_object_add(j, "args", args);
	return j;
}

static struct json_object *list(struct json_object *a, struct json_object *b, struct json_object *c)
{
	struct json_object *l = json_object_new_array();

	if (l && a)
		json_object_array_add(l, a);
	if (l && b)
		json_object_array_add(l, b);
	if (l && c)
		json_object_array_add(l, c);
	return l;
}

static int call(struct ctl_proxy *p, const char *method, struct json_object *args,
		struct json_object **value, int *fd, struct zns_err *err)
{
	int ret = send_packet(p, request(method, args), err);

	return ret ? ret : take_answer(p, value, fd, err);
}

/* Finishes the pipe: skopeo closes it only on request, and answers when all was read. */
static int ask_end(struct ctl_proxy *p, struct zns_err *err)
{
	return send_packet(p,
			   request("FinishPipe", list(json_object_new_int64(p->pipe), NULL, NULL)),
			   err);
}

static int take_end(struct ctl_proxy *p, struct zns_err *err)
{
	struct json_object *value = NULL;
	int fd = -1, ret = take_answer(p, &value, &fd, err);

	json_object_put(value);
	if (fd >= 0)
		close(fd);
	return ret;
}

static int start(struct ctl_proxy *p, char *const *options, int nr, int its, struct zns_err *err)
{
	char number[12], *argv[6 + SKOPEO_OPTIONS] = { "skopeo", "experimental-image-proxy",
						       "--sockfd", number };
	char text[SKOPEO_OPTIONS][256];
	posix_spawn_file_actions_t fa;
	int n = 4, ret;

	snprintf(number, sizeof(number), "%d", ITS_FD);
	for (int i = 0; i < nr; i++) {
		bool src = !strncmp(options[i], "--src-", 6);

		if (snprintf(text[i], sizeof(text[i]), "%s%s", src ? "--" : "",
			     options[i] + (src ? 6 : 0)) >= (int)sizeof(text[i]))
			return zns_fail(err, -ENOTSUP, "an option of skopeo is too long");
		argv[n++] = text[i];
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, p->said, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&fa, its, ITS_FD);
	ret = -posix_spawnp(&p->pid, "skopeo", &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return ret ? skopeo_not_there(ret, err) : 0;
}

static int hello(struct ctl_proxy *p, struct zns_err *err)
{
	struct json_object *value = NULL;
	int fd = -1, ret = call(p, "Initialize", list(NULL, NULL, NULL), &value, &fd, err);
	const char *version = ret ? NULL : json_object_get_string(value);

	/* an older skopeo, or one that does not know an option of skopeo copy */
	if (ret || !version || strncmp(version, VERSION, strlen(VERSION)) != 0)
		ret = zns_fail(
			err, -ENOTSUP,
			"skopeo's image proxy answers in another way than this program knows: another version?");
	if (fd >= 0)
		close(fd);
	json_object_put(value);
	return ret;
}

int ctl_proxy_open(const char *name, char *const *options, int nr, struct ctl_patience *patience,
		   struct ctl_proxy **out, struct zns_err *err)
{
	struct ctl_proxy *p = *out = calloc(1, sizeof(*p));
	struct json_object *value = NULL;
	int s[2] = { -1, -1 }, fd = -1, ret;

	if (!p)
		return zns_fail(err, -ENOMEM, "no memory for skopeo's proxy");
	p->sock = -1;
	p->patience = patience;
	p->said = memfd_create("skopeo", MFD_CLOEXEC);
	if (p->said < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s))
		return zns_fail_sys(err, -errno, "cannot make a socket");
	p->sock = s[0];
	if (s[1] == ITS_FD) /* dup2() to the same number would not clear its close-on-exec flag */
		fcntl(s[1], F_SETFD, 0);
	ret = start(p, options, nr, s[1], err);
	close(s[1]);
	if (!ret)
		ret = hello(p, err);
	if (!ret)
		ret = call(p, "OpenImage", list(json_object_new_string(name), NULL, NULL), &value,
			   &fd, err);
	if (!ret)
		p->image = json_object_get_int64(value);
	if (fd >= 0)
		close(fd);
	json_object_put(value);
	return ret;
}

/* Reads a pipe until its end. */
static int read_pipe(const struct ctl_proxy *p, int fd, char *text, size_t max, size_t *len,
		     struct zns_err *err)
{
	*len = 0;
	while (*len < max) {
		ssize_t n;

		if (ctl_patience_wait(p->patience, fd))
			return ctl_patience_fail(p->patience, "the registry sent", err);
		n = read(fd, text + *len, max - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return zns_fail_sys(err, -errno, "cannot read the manifest");
		if (!n)
			break;
		ctl_patience_got(p->patience, (uint64_t)n);
		*len += (size_t)n;
	}
	text[*len] = 0;
	return 0;
}

int ctl_proxy_image(struct ctl_proxy *p, struct ctl_oci_image *out, struct zns_err *err)
{
	cleanup_free char *text = malloc(MANIFEST_MAX + 2);
	struct json_object *value = NULL;
	cleanup_close int fd = -1;
	size_t len = 0;
	int ret = text ? call(p, "GetManifest", list(json_object_new_int64(p->image), NULL, NULL),
			      &value, &fd, err) :
			 zns_fail(err, -ENOMEM, "no memory for the manifest");

	json_object_put(value);
	if (!ret && fd < 0)
		ret = zns_fail(err, -EBADMSG, "skopeo's answer came without the pipe for its data");
	if (!ret)
		ret = ask_end(p, err);
	if (!ret)
		ret = read_pipe(p, fd, text, MANIFEST_MAX + 1, &len, err);
	/* read the rest, since skopeo would block on a pipe that is not read */
	if (!ret && len > MANIFEST_MAX)
		ret = zns_fail(err, -EFBIG, "the manifest has more than 4 MiB");
	if (!ret)
		ret = take_end(p, err);
	return ret ? ret : ctl_oci_of_manifest(text, len, out, err);
}

static int open_layer(void *arg, const struct ctl_oci_layer *l, struct zns_err *err)
{
	struct ctl_proxy *p = arg;
	struct json_object *value = NULL;
	int fd = -1;
	int ret = call(p, "GetBlob",
		       list(json_object_new_int64(p->image), json_object_new_string(l->digest),
			    json_object_new_int64((int64_t)l->size)),
		       &value, &fd, err);

	json_object_put(value);
	if (!ret && fd < 0)
		ret = zns_fail(err, -EBADMSG, "skopeo's answer came without the pipe for its data");
	if (!ret)
		ret = ask_end(p, err);
	if (ret && fd >= 0)
		close(fd);
	return ret ? ret : fd;
}

static int end_layer(void *arg, struct zns_err *err)
{
	return take_end(arg, err);
}

struct ctl_oci_source ctl_proxy_source(struct ctl_proxy *p)
{
	return (struct ctl_oci_source){
		.open = open_layer, .end = end_layer, .arg = p, .patience = p->patience
	};
}

void ctl_proxy_close(struct ctl_proxy *p)
{
	if (!p)
		return;
	if (p->sock >= 0)
		close(p->sock);
	if (p->pid > 0) {
		kill(p->pid, SIGTERM);
		waitpid(p->pid, NULL, 0);
	}
	if (p->said >= 0)
		close(p->said);
	free(p);
}
