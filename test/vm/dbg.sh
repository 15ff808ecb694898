. /zns/test/vm/guest-lib.sh
guest_setup; nullb_defaults; device_table
python3 -c "
import time,hashlib
t=time.time(); hashlib.sha256(bytes(50<<20)).digest(); print('sha',time.time()-t)"
time (for i in $(seq 100); do /bin/true; done)
time (cat /proc/self/status | grep Cap | cat)
cd /zns; time python3 test/zonetests/zonetests.py run anon pipes threads bigmem 
