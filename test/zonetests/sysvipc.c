/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SysV: a shared segment attached by parent and child, one attached nowhere, a semaphore set, and a
 * queue with messages of odd sizes. zonetest: {'flavour': 'ns'}
 */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include "zt.h"

#define LEN ZT_MB(5)
#define SEMS 5
#define MSGS 7

static int shm_id, lone_id, sem_id, msg_id;
static uint8_t *mem;
static pid_t kid;
static struct message {
	long type;
	uint8_t text[2000];
} message;

static size_t text_len(int i)
{
	return i * 277 + 1;
}

static void fill_all(void)
{
	mem = ZT_SYS((uint8_t *)shmat(shm_id, NULL, 0));
	zt_fill(mem + 8, LEN - 8, 1);
	uint8_t *lone = ZT_SYS((uint8_t *)shmat(lone_id, NULL, 0));
	zt_fill(lone, ZT_MB(1) + 100, 2);
	ZT_SYS(shmdt(lone));
	for (int i = 0; i < SEMS; i++)
		ZT_SYS(semctl(sem_id, i, SETVAL, 3 * i + 1));
	for (int i = 0; i < MSGS; i++) {
		message.type = 10 + i;
		zt_fill(message.text, text_len(i), 20 + i);
		ZT_SYS(msgsnd(msg_id, &message, text_len(i), 0));
	}
}

static void check(void)
{
	struct shmid_ds ds;

	zt_check(mem + 8, LEN - 8, 1, "attached segment");
	ZT_CHECK(!shmctl(shm_id, IPC_STAT, &ds) && ds.shm_nattch == 2 && ds.shm_segsz == LEN,
		 "the attached segment's size or number of users is wrong");
	uint8_t *lone = shmat(lone_id, NULL, SHM_RDONLY);
	ZT_CHECK(lone != (void *)-1, "the other segment is gone: %m");
	zt_check(lone, ZT_MB(1) + 100, 2, "unattached segment");
	ZT_CHECK(!shmdt(lone), "shmdt: %m");
	for (int i = 0; i < SEMS; i++)
		ZT_CHECK(semctl(sem_id, i, GETVAL) == 3 * i + 1, "semaphore %d has another value",
			 i);
}

static void check_messages(void)
{
	for (int i = 0; i < MSGS; i++) {
		ssize_t n = msgrcv(msg_id, &message, sizeof(message.text), 0, IPC_NOWAIT);

		ZT_CHECK(n == (ssize_t)text_len(i), "message %d has %zd bytes", i, n);
		ZT_CHECK(message.type == 10 + i, "message %d has type %ld", i, message.type);
		zt_check(message.text, n, 20 + i, "message");
	}
	ZT_CHECK(msgrcv(msg_id, &message, sizeof(message.text), 0, IPC_NOWAIT) < 0,
		 "a message too many");
}

static void kid_check(int n)
{
	struct sembuf op = { .sem_num = 2, .sem_op = -n };

	zt_check(mem + 8, LEN - 8, 1, "attached segment in the child");
	ZT_CHECK(!semop(sem_id, &op, 1), "semop: %m");
	mem[0] = 0x77;
}

static void check_all(void)
{
	check();
	zt_join(kid);
	ZT_CHECK(mem[0] == 0x77, "the child's write to the segment does not show");
	ZT_CHECK(semctl(sem_id, 2, GETVAL) == 4, "the child's semaphore operation does not show");
	check_messages();
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	shm_id = ZT_SYS(shmget(0x1234, LEN, IPC_CREAT | 0600));
	lone_id = ZT_SYS(shmget(0x1235, ZT_MB(1) + 100, IPC_CREAT | 0640));
	sem_id = ZT_SYS(semget(0x1236, SEMS, IPC_CREAT | 0600));
	msg_id = ZT_SYS(msgget(0x1237, IPC_CREAT | 0600));
	fill_all();
	kid = zt_fork(NULL, kid_check, 3);
	check();
	zt_ready(NULL);
	zt_flip(mem + 3 * ZT_PAGE + 5);
	zt_serve(check_all);
}
