/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SHMID_H__
#define __CR_ZNS_SHMID_H__
#include <stdint.h>
#include <sys/types.h>

/*
 * criu calls the image of a shared memory object by the object's inode number, that of a System V segment by the
 * segment's id, and looks at no device: two objects may have one number, and one image then overwrites the other.
 *
 * The number @id for the image of object (@dev, @ino), which is no System V segment: @ino, as in stock criu, unless a
 * segment of the dumped tasks' ipc namespace or an object seen before has it. Any criu restores either. The same object
 * always gets the same number. For use while tasks are frozen. 0, or -1 with one line in the log.
 */
extern int zns_shm_id(dev_t dev, ino_t ino, uint64_t *id);

#endif
