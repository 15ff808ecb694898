/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pty pair with settings of its own and unread data, and a child in a session whose terminal it
 * is. zonetest: {'flavour': 'h ns'}
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include "zt.h"

static int master, slave;
static char slave_name[64];
static pid_t kid;
static const char up[] = "from slave to master, unread", down[] = "a line from master\n";

static void kid_setup(int n)
{
	(void)n;
	ZT_SYS(setsid());
	slave = ZT_SYS(open(slave_name, O_RDWR));
	ZT_SYS(ioctl(slave, TIOCSCTTY, 0));
}

static void kid_check(int n)
{
	int tty = open("/dev/tty", O_RDWR);

	(void)n;
	ZT_CHECK(getsid(0) == getpid(), "the child no longer leads its session");
	ZT_CHECK(tcgetsid(slave) == getpid(), "the terminal belongs to session %d",
		 tcgetsid(slave));
	ZT_CHECK(tty >= 0 || access("/dev/tty", F_OK), "/dev/tty: %m");
}

static void set_modes(void)
{
	struct winsize ws = { .ws_row = 43, .ws_col = 117 };
	struct termios t;

	ZT_SYS(tcgetattr(slave, &t));
	cfmakeraw(&t);
	t.c_cc[VINTR] = 5;
	t.c_cc[VMIN] = 1;
	ZT_SYS(tcsetattr(slave, TCSANOW, &t));
	ZT_SYS(ioctl(master, TIOCSWINSZ, &ws));
}

static void check_modes(void)
{
	struct winsize ws = { 0 };
	struct termios t;

	ZT_CHECK(!tcgetattr(slave, &t), "tcgetattr: %m");
	ZT_CHECK(!(t.c_lflag & (ECHO | ICANON)), "the terminal is no longer raw");
	ZT_CHECK(t.c_cc[VINTR] == 5, "VINTR is %d", t.c_cc[VINTR]);
	ZT_CHECK(!ioctl(slave, TIOCGWINSZ, &ws) && ws.ws_row == 43 && ws.ws_col == 117,
		 "window size is %d x %d", ws.ws_row, ws.ws_col);
}

static void expect(int fd, const char *text, const char *what)
{
	char got[100] = "";

	zt_read_all(fd, got, strlen(text), what);
	ZT_CHECK(!strcmp(got, text), "%s: '%s' instead of '%s'", what, got, text);
}

static void check(void)
{
	char name[64] = "";

	check_modes();
	ZT_CHECK(!ptsname_r(master, name, sizeof(name)) && !strcmp(name, slave_name),
		 "the slave is now %s", name);
	ZT_CHECK(!fcntl(slave, F_SETFL, O_NONBLOCK) && !fcntl(master, F_SETFL, O_NONBLOCK),
		 "fcntl: %m");
	expect(slave, down, "data for the slave");
	expect(master, up, "data for the master");
	ZT_CHECK(write(master, "again", 5) == 5, "write to the master: %m");
	expect(slave, "again", "new data");
	zt_join(kid);
}

int main(int argc, char **argv)
{
	char c;

	zt_init(argc, argv);
	master = ZT_SYS(posix_openpt(O_RDWR | O_NOCTTY));
	ZT_SYS(grantpt(master));
	ZT_SYS(unlockpt(master));
	ptsname_r(master, slave_name, sizeof(slave_name));
	slave = ZT_SYS(open(slave_name, O_RDWR | O_NOCTTY));
	set_modes();
	zt_write_all(slave, up, strlen(up));
	zt_write_all(master, down, strlen(down));
	kid = zt_fork(kid_setup, kid_check, 0);
	zt_ready(NULL);
	if (zt_selftest)
		ZT_SYS(read(slave, &c, 1));
	zt_serve(check);
}
