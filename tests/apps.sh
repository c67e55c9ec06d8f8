#!/bin/sh
# apps.sh BUILD: real programs of the distribution, each without and with the library: same status, same result.
build=$PWD/$1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
passed=0
failed=0

# What of an output must be the same. The ranks' lines come in any order, and numbers are mostly times.
lines() { sed -E 's/[0-9]+([.:][0-9]+)*(e[-+]?[0-9]+)?//g; s/[[:space:]]+/ /g' "$1" | sort; }
# unittest's: how many ranks ran the suite with which outcome; four ranks' lines are glued to each other.
outcomes() { grep -oE 'Ran|OK|FAIL[A-Z]*|ERROR' "$1" | sort | uniq -c; }

# same NAME SUMMARY COMMAND...: runs it without and with the library and compares status and summary.
same() {
  name=$1
  summary=$2
  shift 2
  timeout -s KILL 200 "$@" >"$place/without" 2>&1
  without=$?
  if [ $without = 137 ]; then
    echo "skipped $name: it hangs without the library"
    return
  fi
  timeout -s KILL 200 "$build/accelrun" "$@" >"$place/with" 2>&1
  with=$?
  for side in without with; do $summary "$place/$side" >"$place/$side.text"; done
  if [ $without = $with ] && cmp -s "$place/without.text" "$place/with.text" && ! grep -q '^accel\.' "$place/with"; then
    passed=$((passed + 1))
    echo "ok      $name (status $with)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name: status $without without, $with with"
    diff "$place/without.text" "$place/with.text" | head -20
    grep -A20 '^\[accel\]' "$place/with" | head -40
  fi
}

# Launchers other than mpirun: a fault is named, and an out-of-memory is tried again.
cat >"$place/rank.sh" <<'RANK'
#!/bin/sh
export RANK=${RANK:-$SLURM_PROCID$HOROVOD_RANK} WORLD_SIZE=${WORLD_SIZE:-$SLURM_NTASKS$HOROVOD_SIZE}
export RENDEZVOUS=$0.${ACCEL_ATTEMPT:-0}.${SLURM_STEP_ID:-$MASTER_PORT$HOROVOD_GLOO_RENDEZVOUS_PORT}
mkdir -p "$RENDEZVOUS"
exec "$@"
RANK
chmod +x "$place/rank.sh"
# ends NAME STATUS LINE COMMAND...: it ends with that status and says that
ends() {
  name=$1
  wanted=$2
  line=$3
  shift 3
  rm -rf "$place"/rank.sh.*  # where ranks of the run before have met
  timeout -s KILL 100 env ACCEL_STANDIN_GPU_MEMORY=48M ACCEL_STANDIN_NCCL_MISMATCH=hang "$@" >"$place/output" 2>&1
  got=$?
  if [ $got = "$wanted" ] && grep -qF -- "$line" "$place/output"; then
    passed=$((passed + 1))
    echo "ok      $name (status $got)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name: status $got"
    tail -40 "$place/output"
  fi
}
knobs="--batch arg:--batch --accum arg:--accum"
programs="$place/rank.sh $build/programs/nccl"
trained='trained with batch 32, accumulation 2'
if [ "$(id -u)" = 0 ]; then
  srun="srun -n 2 --overcommit $programs"
  ends "srun: mismatch" 80 'Process 1: float32[512], sum' tests/slurm.sh "$build/accelrun" $srun/faults count
  ends "srun: again with half the batch" 0 "$trained" tests/slurm.sh "$build/accelrun" $knobs $srun/trainer --batch 64 --accum 1
else
  echo "skipped Slurm: its daemons want root"
fi
# The streams are named because this PyTorch's default does not work with this Python.
torchrun="/usr/bin/python3 -m torch.distributed.run --nproc_per_node 2 --redirects 0:1,1:1 --tee 0:1,1:1 --no_python $programs"
ends "torchrun: mismatch" 80 'traceback : [accel] accel.DistributedOperationError: ' "$build/accelrun" $torchrun/faults count
ends "torchrun: restarts are left to accelrun" 0 '--max_restarts 3 is left out' "$build/accelrun" $knobs \
  $(echo "$torchrun" | sed 's/--redirects/--max_restarts 3 --redirects/')/trainer --batch 64 --accum 1
ends "torchrun: again with half the batch" 0 "$trained" "$build/accelrun" $knobs $torchrun/trainer --batch 64 --accum 1
# From PyPI, with the distribution's PyTorch; ssh to this machine is played by sh, which deepspeed asks for.
/usr/bin/python3 -m venv --system-site-packages "$place/venv"
if "$place/venv/bin/pip" install -q --no-deps accelerate==0.34.2 huggingface_hub==0.24.0 safetensors psutil pyyaml \
  packaging filelock requests urllib3 idna certifi charset_normalizer tqdm fsspec typing_extensions wheel setuptools hjson \
  py-cpuinfo pynvml pydantic==1.10.13 >/dev/null 2>&1 &&
  DS_BUILD_OPS=0 "$place/venv/bin/pip" install -q --no-deps --no-build-isolation deepspeed==0.12.6 >/dev/null 2>&1; then
  accelerate="env PET_REDIRECTS=1 $place/venv/bin/accelerate launch --tee 1 --num_processes 2 --num_machines 1 --multi_gpu \
    --no_python --mixed_precision no --dynamo_backend no --main_process_port 29511 $programs"
  ends "accelerate launch: mismatch" 80 'traceback : [accel] accel.DistributedOperationError: ' "$build/accelrun" $accelerate/faults count
  ends "accelerate launch: again with half the batch" 0 "$trained" "$build/accelrun" $knobs $accelerate/trainer --batch 64 --accum 1
  printf '%s\n' '#!/bin/sh' 'while [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done' 'shift' 'exec sh -c "$*"' >"$place/venv/bin/ssh"
  chmod +x "$place/venv/bin/ssh"
  echo 'localhost slots=2' >"$place/hostfile"
  deepspeed="deepspeed --hostfile $place/hostfile --no_python --no_local_rank --master_port 29512 $programs"
  PATH=$place/venv/bin:$PATH
  ends "deepspeed: mismatch" 80 'Process 1: float32[512], sum' "$build/accelrun" $deepspeed/faults count
  ends "deepspeed: again with half the batch" 0 "$trained" "$build/accelrun" $knobs $deepspeed/trainer --batch 64 --accum 1
else
  echo "skipped accelerate launch and deepspeed: they cannot be had from PyPI"
fi

# horovodrun of the source archive: a launcher in Python, told that its libraries have been built.
if "$place/venv/bin/pip" install -q --no-deps cloudpickle psutil pyyaml packaging >/dev/null 2>&1 &&
  python3 -m pip download -q --no-deps --no-binary :all: -d "$place" horovod==0.28.1 >/dev/null 2>&1; then
  tar xzf "$place/horovod-0.28.1.tar.gz" -C "$place"
  cat >"$place/horovodrun" <<HOROVODRUN
#!$place/venv/bin/python3
import sys
sys.path.insert(0, "$place/horovod-0.28.1")
if __name__ == "__main__":
    from horovod.runner import launch
    launch.mpi_built = launch.gloo_built = lambda verbose=False: True
    sys.exit(launch.run_commandline())
HOROVODRUN
  chmod +x "$place/horovodrun"
  ends "horovodrun --mpi: mismatch" 80 'Process 1: float64[512], sum' \
    "$build/accelrun" "$place/horovodrun" -np 2 --mpi "$build/programs/openmpi/faults" count
  horovodrun="$place/horovodrun -np 2 --gloo $programs"
  ends "horovodrun --gloo: mismatch" 80 'Process 1: float32[512], sum' "$build/accelrun" $horovodrun/faults count
  ends "horovodrun --gloo: again with half the batch" 0 "$trained" "$build/accelrun" $knobs $horovodrun/trainer --batch 64 --accum 1
else
  echo "skipped horovodrun: it cannot be had from PyPI"
fi

# mpi4py: the collective part of its own test suite, from PyPI's source archive of the version that Debian ships.
version=$(/usr/bin/python3 -c 'import mpi4py; print(mpi4py.__version__)')
if python3 -m pip download -q --no-deps --no-binary :all: -d "$place" "mpi4py==$version" >/dev/null 2>&1; then
  tar xzf "$place/mpi4py-$version.tar.gz" -C "$place"
  for suite in test_cco_buf test_cco_buf_inter test_cco_obj test_cco_obj_inter test_cco_vec test_cco_vec_inter \
    test_cco_nb_buf test_cco_ngh_buf test_comm test_comm_inter test_comm_topo test_datatype test_op test_p2p_buf \
    test_errhandler test_attributes test_win test_io test_rma; do
    same "mpi4py $suite, 4 ranks" outcomes mpirun.openmpi -n 4 /usr/bin/python3 \
      "$place/mpi4py-$version/test/runtests.py" --no-builddir -q -i "$suite\$"
  done
else
  echo "skipped mpi4py: its source archive cannot be had"
fi

if [ -x /usr/bin/NPopenmpi ] || [ -x /usr/bin/NPmpi ]; then
  netpipe=$(command -v NPopenmpi || command -v NPmpi)
  same "NetPIPE" lines mpirun.openmpi -n 2 "$netpipe" -u 65536 -o "$place/netpipe"
fi

# ScaLAPACK's own testers, in a copy of their data.
cp -r /usr/share/scalapack "$place/scalapack"
cd "$place/scalapack"
for tester in xdlu xdqr xdinv xdbrd; do
  same "ScaLAPACK $tester, 4 ranks" lines mpirun.openmpi -n 4 "$(find /usr/lib -path "*/openmpi-tests/$tester")"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
