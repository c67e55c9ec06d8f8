#!/bin/sh
# Installs what is missing to build and test, from the distribution's packages. Says nothing when nothing is.
#   deps.sh          build and tests
#   deps.sh apps     also the real programs of check-apps
#   deps.sh headers  CUDA and NCCL headers into build/headers, from PyPI's wheels, where no toolkit has them
set -eu

build="g++ make iproute2 pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev libdw-dev libelf-dev libunwind8 libyaml-cpp-dev libtomlplusplus-dev zlib1g-dev libsodium-dev node-d3 chromium-headless-shell
  openmpi-bin libopenmpi-dev mpich libmpich-dev gfortran libgtest-dev libbenchmark-dev python3-mpi4py libgloo-dev
  clang libclang-rt-14-dev clang-format clang-tidy"
apps="netpipe-openmpi scalapack-mpi-test python3-mpi4py python3-numpy libhdf5-openmpi-dev libhdf5-mpich-dev
  slurmd slurmctld slurm-client munge python3-torch"

missing() {
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
  done
}

headers() {
  cuda=${CUDA_HOME:-/usr/local/cuda}
  for name in cuda.h nccl.h; do
    for place in "$cuda/include" "${NCCL_HOME:-/usr}/include" /usr/include build/headers; do
      [ -e "$place/$name" ] && continue 2
    done
    case $name in cuda.h) wheel=nvidia-cuda-runtime-cu12 ;; *) wheel=nvidia-nccl-cu12 ;; esac
    mkdir -p build/headers/wheels
    python3 -m pip download -q --no-deps -d build/headers/wheels "$wheel"
    python3 - build/headers "$wheel" <<'PYTHON'
import glob, os, sys, zipfile
target, wheel = sys.argv[1:]
for path in glob.glob(os.path.join(target, "wheels", wheel.replace("-", "_") + "-*.whl")):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/include/" in name and not name.endswith("/"):
                place = os.path.join(target, name.split("/include/", 1)[1])
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "wb") as file:
                    file.write(archive.read(name))
PYTHON
  done
}

case ${1:-} in
  headers) headers; exit ;;
  apps) wanted="$build $apps" ;;
  *) wanted=$build ;;
esac

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086
  list=$(missing $wanted)
  [ -z "$list" ] && exit 0
  echo "installing: $list"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $list >/dev/null
elif command -v dnf >/dev/null; then
  echo "installing with dnf"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo dnf install -y -q gcc-c++ make pkgconf fmt-devel cli11-devel json-devel yaml-cpp-static tomlplusplus-devel libsodium-static libsodium-devel elfutils-devel libunwind openmpi-devel \
    mpich-devel gcc-gfortran gtest-devel google-benchmark-devel mpi4py-common clang clang-tools-extra compiler-rt
  mkdir -p build/headers
  [ -e build/headers/d3.min.js ] || curl -sSfo build/headers/d3.min.js https://d3js.org/d3.v5.min.js
else
  echo "deps: neither apt nor dnf here; please install by hand: $wanted" >&2
  exit 1
fi
