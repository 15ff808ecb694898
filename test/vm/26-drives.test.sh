#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# 22-drives on small drives: eight dies behind four channels that are slower than two of them, eight with a permuted map, sixteen
# whose channels limit nothing.
# vm: --timeout 4000 --devices dies:behind,size=64M,zone=4M,model.channels=4,model.ways=2,model.die-write=10,model.die-read=20,model.channel=14 dies:permuted,size=64M,zone=4M,model.channels=8,model.map=permuted,model.map-seed=7,model.die-write=10,model.die-read=20,model.channel=200 dies:sixteen,size=128M,zone=4M,model.channels=16,model.die-write=10,model.die-read=20,model.channel=200
exec bash "$(dirname "$0")/22-drives.test.sh"
