#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# 22-drives on sixteen dies behind eight channels that are slower than two of them, with a permuted map.
# vm: --timeout 4000 --devices dies:sixteen,size=256M,zone=8M,model.channels=8,model.ways=2,model.map=permuted,model.map-seed=7,model.die-write=20,model.die-read=40,model.channel=28
exec bash "$(dirname "$0")/22-drives.test.sh"
