/* SPDX-License-Identifier: GPL-2.0-only */
/* The first process of a pod. */
#include <signal.h>
#include <unistd.h>

int main(void)
{
	signal(SIGTERM, _exit);
	for (;;)
		pause();
}
