/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A network namespace: lo is up with a second address and another MTU, a sysctl is changed, and a
 * UDP socket on lo has a datagram partner. zonetest: {'flavour': 'ns'}
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include "zt.h"

#define MTU 12345
static int ctl, udp;
static struct sockaddr_in addr;
static const char sysctl_path[] = "/proc/sys/net/ipv4/conf/lo/rp_filter";

static struct ifreq request(const char *name)
{
	struct ifreq r = { 0 };

	strncpy(r.ifr_name, name, IFNAMSIZ - 1);
	return r;
}

static void set_address(const char *name, const char *ip)
{
	struct ifreq r = request(name);
	struct sockaddr_in a = { .sin_family = AF_INET };

	inet_pton(AF_INET, ip, &a.sin_addr);
	memcpy(&r.ifr_addr, &a, sizeof(a));
	ZT_SYS(ioctl(ctl, SIOCSIFADDR, &r));
}

static void check_address(const char *name, const char *ip)
{
	struct ifreq r = request(name);
	struct sockaddr_in a;
	char got[32];

	ZT_CHECK(!ioctl(ctl, SIOCGIFADDR, &r), "%s has no address: %m", name);
	memcpy(&a, &r.ifr_addr, sizeof(a));
	ZT_CHECK(!strcmp(inet_ntop(AF_INET, &a.sin_addr, got, sizeof(got)), ip),
		 "%s has address %s", name, got);
}

static void up(void)
{
	struct ifreq r = request("lo");

	ZT_SYS(ioctl(ctl, SIOCGIFFLAGS, &r));
	r.ifr_flags |= IFF_UP;
	ZT_SYS(ioctl(ctl, SIOCSIFFLAGS, &r));
	r = request("lo");
	r.ifr_mtu = MTU;
	ZT_SYS(ioctl(ctl, SIOCSIFMTU, &r));
	set_address("lo:1", "10.11.12.13");
}

static void check_link(void)
{
	struct ifreq r = request("lo");

	ZT_CHECK(!ioctl(ctl, SIOCGIFFLAGS, &r) && (r.ifr_flags & IFF_UP), "lo is down");
	r = request("lo");
	ZT_CHECK(!ioctl(ctl, SIOCGIFMTU, &r) && r.ifr_mtu == MTU, "lo's MTU is %d", r.ifr_mtu);
	check_address("lo", "127.0.0.1");
	check_address("lo:1", "10.11.12.13");
}

static void check(void)
{
	char c = 0;
	int fd = open(sysctl_path, O_RDONLY | O_CLOEXEC);

	check_link();
	ZT_CHECK(fd >= 0 && read(fd, &c, 1) == 1 && c == '2', "rp_filter of lo is %c", c);
	close(fd);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ZT_CHECK(sendto(fd, "!", 1, 0, (struct sockaddr *)&addr, sizeof(addr)) == 1, "sendto: %m");
	ZT_CHECK(recv(udp, &c, 1, MSG_DONTWAIT) == 1 && c == '!',
		 "the UDP socket gets nothing: %m");
	close(fd);
}

int main(int argc, char **argv)
{
	struct ifreq r = request("lo");
	socklen_t len = sizeof(addr);

	zt_init(argc, argv);
	ctl = ZT_SYS(socket(AF_INET, SOCK_DGRAM, 0));
	up();
	int fd = ZT_SYS(open(sysctl_path, O_WRONLY | O_CLOEXEC));
	zt_write_all(fd, "2", 1);
	close(fd);
	udp = ZT_SYS(socket(AF_INET, SOCK_DGRAM, 0));
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ZT_SYS(bind(udp, (struct sockaddr *)&addr, sizeof(addr)));
	ZT_SYS(getsockname(udp, (struct sockaddr *)&addr, &len));
	zt_ready(check);
	if (zt_selftest) {
		r.ifr_mtu = MTU ^ 1;
		ZT_SYS(ioctl(ctl, SIOCSIFMTU, &r));
	}
	zt_serve(check);
}
