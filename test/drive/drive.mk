# SPDX-License-Identifier: GPL-2.0-only
# Modelled drives for guests: an nbdkit plugin.

DRIVE_SO	:= $(B)/test/drive.so
DRIVE_OBJ	:= $(filter-out %/track.o %/nonces.o,$(filter $(B)/pic/zns/base/% $(B)/pic/zns/dev/% $(B)/pic/test/controls/% $(B)/pic/gen/%,$(PIC_OBJ)))

.PHONY: drive drive-selftest
drive: deps-vm
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) $(DRIVE_SO)

# Asked against got, over NBD.
drive-selftest: drive
	$(Q)PATH=$(SYS_PATH) python3 test/drive/selftest.py $(DRIVE_SO) --report $(B)/report/drive/selftest.json

$(DRIVE_SO): $(wildcard test/drive/*.c test/drive/*.h) $(DRIVE_OBJ)
	@mkdir -p $(@D)
	$(call say,CC      $@)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -shared -o $@ $(filter test/drive/%.c %.o,$^) $(LDLIBS) -lpthread
