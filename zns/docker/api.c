/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dockerd's HTTP interface. It is used with HTTP/1.0, so that the answer is not chunked and ends
 * when the connection closes.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "docker.h"

#define ANSWER_MAX MIB(32)

int docker_api_init(struct docker_api *a, const char *host, struct zns_err *err)
{
	const char *h = host ? host : secure_getenv("DOCKER_HOST");

	if (!h || !*h)
		h = "unix:///var/run/docker.sock";
	if (strncmp(h, "unix://", 7) || h[7] != '/')
		return zns_fail(
			err, -EINVAL,
			"docker host %s: only unix:///PATH is of use here, since the daemon's files must be "
			"on this machine",
			h);
	if (strlen(h + 7) >= sizeof(a->socket))
		return zns_fail(err, -ENAMETOOLONG, "docker host %s: the path is too long", h);
	strcpy(a->socket, h + 7);
	return 0;
}

static int dial(const struct docker_api *a, struct zns_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make a socket");
	strcpy(sa.sun_path, a->socket);
	if (a->limit_s)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = a->limit_s },
			   sizeof(struct timeval));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		zns_fail_sys(
			err, -errno,
			"no Docker daemon at %s (is it running? --host or DOCKER_HOST names another)",
			a->socket);
		close(fd);
		return err ? err->code : -ECONNREFUSED;
	}
	return fd;
}

static int read_all(int fd, char **out, struct zns_err *err)
{
	size_t len = 0, room = 16384;
	char *buf = malloc(room + 1), *bigger;
	ssize_t n = 0;
	bool late;

	while (buf && len < ANSWER_MAX) {
		if (len == room) {
			bigger = realloc(buf, 2 * room + 1);
			if (!bigger)
				break;
			buf = bigger;
			room *= 2;
		}
		n = read(fd, buf + len, room - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (!buf || n) {
		late = n < 0 && errno == EAGAIN;
		free(buf);
		return late ? zns_fail(err, -ETIMEDOUT,
				       "Docker's daemon has not answered in time") :
			      zns_fail(err, n < 0 ? -EIO : -ENOMEM,
				       "the answer of Docker's daemon cannot be read");
	}
	buf[len] = 0;
	*out = buf;
	return 0;
}

static int judge(int status, struct json_object *o, struct zns_err *err)
{
	const char *msg = zns_json_str(o, "message");

	if (status < 400)
		return 0;
	return zns_fail(err,
			status == 404 ? -ENOENT :
			status == 409 ? -EEXIST :
					-EREMOTEIO,
			"docker: %s", msg ? msg : "the daemon refused without a reason");
}

int docker_api_call(const struct docker_api *a, const char *method, const char *path,
		    struct json_object *body, struct json_object **out, struct zns_err *err)
{
	const char *text = body ? json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN) : "",
		   *at;
	cleanup_close int fd = dial(a, err);
	cleanup_free char *answer = NULL;
	struct json_object *o = NULL;
	int status = 0, ret;

	if (out)
		*out = NULL;
	if (fd < 0)
		return fd;
	if (dprintf(fd,
		    "%s %s HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		    method, path, strlen(text)) < 0 ||
	    zns_write_all(fd, text, strlen(text)))
		return zns_fail(err, -EIO, "Docker's daemon at %s does not take the request",
				a->socket);
	ret = read_all(fd, &answer, err);
	if (ret)
		return ret;
	at = strstr(answer, "\r\n\r\n");
	if (sscanf(answer, "HTTP/1.%*c %d", &status) != 1 || !at)
		return zns_fail(err, -EPROTO, "%s does not answer as Docker's daemon does",
				a->socket);
	if (at[4])
		o = json_tokener_parse(at + 4);
	ret = judge(status, o, err);
	if (ret || !out)
		json_object_put(o);
	else
		*out = o;
	return ret;
}
