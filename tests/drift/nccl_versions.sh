#!/bin/sh
# nccl_versions.sh BUILD CUDA_INCLUDE [VERSION...]: the table against the nccl.h of other NCCL versions, out of PyPI's
# wheels. Downloads some hundred megabytes each.
set -eu
build=$1
cuda=$2
shift 2
[ $# -gt 0 ] || set -- cu11==2.14.3 cu12==2.18.3 cu12==2.21.5 cu12==2.26.2 cu13
failed=0
for version in "$@"; do
  place=$build/headers/nccl-$version
  mkdir -p "$place"
  if [ ! -e "$place/nccl.h" ]; then
    python3 -m pip download -q --no-deps --no-cache-dir -d "$place" "nvidia-nccl-$version"
    unzip -q -o -j "$place"/*.whl '*/include/nccl.h' -d "$place"
    rm "$place"/*.whl
  fi
  name=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) *//p' "$place/nccl.h" | paste -sd.)
  if g++ -std=c++20 -fsyntax-only -Ishim -Iinclude -I"$place" -I"$cuda" tests/drift/nccl.cpp &&
     tests/drift/nccl_names.sh "$place/nccl.h" shim/signature/functions.def; then
    echo "NCCL $name: the table fits"
  else
    echo "NCCL $name: FAILED"
    failed=1
  fi
done
exit $failed
