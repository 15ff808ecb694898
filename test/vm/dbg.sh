. /repo/test/vm/guest-lib.sh
guest_setup; d=/dev/$(named store); mkfs.ext4 -q $d; mount $d /mnt; dd if=/dev/urandom of=/mnt/a bs=1M count=20; sync
dd if=/dev/urandom of=/mnt/b bs=1M count=5 oflag=direct; umount /mnt; blockdev --flushbufs $d; sync $d
