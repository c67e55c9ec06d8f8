#!/bin/sh
# flight_recorder.sh BUILD: what accelrun inspect --flight-recorder writes, read by PyTorch's own analyzer, the latest on
# PyPI. Downloads a hundred megabytes, of which a few files are kept.
set -eu
build=$PWD/$1
place=$build/headers/flight-recorder
if [ ! -e "$place/torch" ]; then
  mkdir -p "$place"
  # The smallest wheel; the analyzer is all Python.
  python3 -m pip download -q --no-deps --no-cache-dir --only-binary=:all: --platform manylinux_2_28_aarch64 \
    --python-version 312 -d "$place" torch
  unzip -q -o "$place"/torch-*.whl 'torch/distributed/flight_recorder/*' -d "$place"
  rm "$place"/torch-*.whl
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect NAME STATUS WORDS COMMAND...: the run's status, and what the analyzer says of its dump; no WORDS: it finds
# nothing wrong.
expect() {
  name=$1 status=$2 words=$3
  shift 3
  code=0
  ACCEL_RUN_DIR=$scratch "$build/accelrun" --keep "$@" >"$scratch/output" 2>&1 || code=$?
  run=$(sed -n 's/^\[accel\] records kept in //p' "$scratch/output")
  "$build/accelrun" inspect "$run" --flight-recorder "$scratch/$name"
  said=$(cd "$place" && python3 -m torch.distributed.flight_recorder.fr_trace "$scratch/$name" 2>&1) || said="$said (failed)"
  case $said in
    *Traceback* | *"(failed)"*) ok=false ;;
    *"error msg"* | *"Not all ranks"* | *annot*) [ -n "$words" ] && ok=true || ok=false ;;
    *) [ -z "$words" ] && ok=true || ok=false ;;
  esac
  case $said in *"$words"*) ;; *) ok=false ;; esac
  if $ok && [ "$code" = "$status" ]; then
    echo "flight recorder, $name: ok"
  else
    echo "flight recorder, $name: FAILED: status $code, the analyzer says: $said"
    failed=1
  fi
}

programs=$build/programs
expect healthy 0 "" mpirun.openmpi -n 3 "$programs/openmpi/steps" 20
PATH=$PATH:$PWD/tests/programs LD_LIBRARY_PATH=$build/standin expect pairs 0 "" spawn.py 3 "$programs/nccl/ring"
expect count 80 "Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH" mpirun.openmpi -n 4 "$programs/openmpi/faults" count
expect kind 80 "COLLECTIVE_TYPE_MISMATCH" mpirun.openmpi -n 4 "$programs/openmpi/faults" kind
expect left 82 "Not all ranks joining collective" mpirun.openmpi -n 4 "$programs/openmpi/faults" exit0
exit $failed
