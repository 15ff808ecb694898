/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Host and domain name of a uts namespace.
 * zonetest: {'flavour': 'ns'}
 */
#include <sys/utsname.h>
#include "zt.h"

static const char host[] = "zone-under-test", domain[] = "checkpoints.example";

static void check(void)
{
	struct utsname u;

	ZT_CHECK(!uname(&u), "uname: %m");
	ZT_CHECK(!strcmp(u.nodename, host), "host name is %s", u.nodename);
	ZT_CHECK(!strcmp(u.domainname, domain), "domain name is %s", u.domainname);
	zt_digest(u.nodename, strlen(u.nodename));
	zt_digest(u.domainname, strlen(u.domainname));
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	ZT_SYS(sethostname(host, strlen(host)));
	ZT_SYS(setdomainname(domain, strlen(domain)));
	zt_ready(check);
	if (zt_selftest)
		ZT_SYS(sethostname("zone-under-tesu", strlen(host)));
	zt_serve(check);
}
