#!/bin/sh
# demo_nccl.sh BUILD: a data-parallel trainer that goes wrong in three ways, on stand-ins for four GPUs.
build=$1
run() {
  echo
  echo "\$ accelrun spawn.py 4 data_parallel $*"
  ACCEL_STANDIN_GPU_MEMORY=256M "$build/accelrun" tests/programs/spawn.py 4 "$build/examples/nccl/data_parallel" "$@"
  echo "exit status $?"
}
run --steps 10
run --bug bucket
run --bug uneven
run --batch 2000000
