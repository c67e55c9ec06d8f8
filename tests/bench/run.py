#!/usr/bin/env python3
"""run.py BUILD: ratios with and without the library, in pairs within one run, as medians."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

build = os.path.abspath(sys.argv[1])
rounds = int(os.environ.get("BENCH_ROUNDS", "9"))
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
library = build + "/libaccel.so"
launchers = {
    "openmpi": (["mpirun.openmpi", "--bind-to", "core", "-n", "2"], lambda n, v: ["-x", f"{n}={v}"]),
    "mpich": (["mpiexec.mpich", "-bind-to", "core", "-n", "2"], lambda n, v: ["-genv", n, v]),
}


def latency(mpi, variables):
    command, give = launchers[mpi]
    command = list(command)
    for name, value in variables.items():
        command += give(name, value)
    command += [f"{build}/bench/{mpi}/latency"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return [float(word) for word in done.stdout.split()]


def compare(mpi):
    extra = f"{build}/bench/{mpi}/extra_allreduce.so"
    variants = {
        "libaccel": {"LD_PRELOAD": library},
        "extra Allreduce": {"LD_PRELOAD": extra},
        "extra Iallreduce": {"LD_PRELOAD": extra, "EXTRA_NONBLOCKING": "1"},
    }
    ratios = {name: ([], []) for name in variants}
    own, memory, base = [], [], []
    for _ in range(rounds):
        plain = latency(mpi, {})
        base.append(plain)
        for name, variables in variants.items():
            with_it = latency(mpi, variables)
            ratios[name][0].append(with_it[1] / plain[1])
            ratios[name][1].append(with_it[2] / plain[2])
            if name == "libaccel":
                own.append(with_it[0] - plain[0])
                memory.append(with_it[3] - plain[3])
    middle = lambda index: statistics.median(one[index] for one in base)
    print(f"{mpi}: without a tool 8 B {middle(1):.0f} ns, 64 KiB {middle(2) / 1000:.1f} us a call")
    for name, (small, large) in ratios.items():
        print(f"  {name:17} 8 B x{statistics.median(small):.2f}   64 KiB x{statistics.median(large):.3f}")
    print(f"  libaccel's own work: {statistics.median(own):.0f} ns a call (on MPI_COMM_SELF), "
          f"{statistics.median(memory) / 1024:.1f} MiB resident a rank")


PYTHON_CALLS = """
import time, array
from mpi4py import MPI
world, one, sum = MPI.COMM_SELF, array.array("d", [1.0]), array.array("d", [0.0])
def step(depth):
    if depth: return step(depth - 1)
    begin = time.perf_counter()
    for _ in range(100000): world.Allreduce([one, 1, MPI.DOUBLE], [sum, 1, MPI.DOUBLE])
    return (time.perf_counter() - begin) * 1e9 / 100000
print(step(20))
"""


def python_sites():
    """What it costs to know the line of each call of a Python program, 20 functions deep."""
    def once(stacks):
        environment = dict(os.environ, LD_PRELOAD=library, ACCEL_STACKS=stacks)
        done = subprocess.run(["mpirun.openmpi", "-n", "1", "/usr/bin/python3", "-c", PYTHON_CALLS], env=environment,
                              capture_output=True, text=True, check=True)
        return float(done.stdout)
    pairs = [(once("native"), once("sites")) for _ in range(rounds)]
    print(f"Python: a call takes {statistics.median(native for native, _ in pairs):.0f} ns, with ACCEL_STACKS=sites "
          f"x{statistics.median(sites / native for native, sites in pairs):.2f}")


def calls():
    """Our own work on top of an NCCL and a driver that do nothing."""
    def measure(variables):
        done = subprocess.run([f"{build}/bench/calls"], capture_output=True, text=True, env=dict(os.environ, **variables))
        if done.returncode != 0:
            sys.exit(f"calls: status {done.returncode}\n{done.stdout}{done.stderr}")
        return [float(word) for word in done.stdout.split()]
    names = ("ncclAllReduce", "cuMemAlloc or cuMemFree", "cuStreamSynchronize", "dlsym of another name")
    pairs = [(measure({}), measure({"LD_PRELOAD": library})) for _ in range(rounds)]
    for index, name in enumerate(names):
        plain = statistics.median(pair[0][index] for pair in pairs)
        own = statistics.median(pair[1][index] - pair[0][index] for pair in pairs)
        print(f"{name}: {plain:.1f} ns, with libaccel {own:+.1f} ns")


def detection(mpi, fault):
    """Milliseconds from the last rank's call to the report in the log file."""
    command, _ = launchers[mpi]
    worst = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            log = place + "/log"
            environment = dict(os.environ, ACCEL_LOG_FILE=log, ACCEL_TEST_STAMP=place + "/stamp")
            subprocess.run([build + "/accelrun", command[0], "-n", "4", f"{build}/programs/{mpi}/faults", fault],
                           env=environment, capture_output=True)
            stamps = [float(open(f"{place}/stamp.{rank}").read()) for rank in range(4)]
            worst.append((os.stat(log).st_mtime_ns - max(stamps)) / 1e6)
    print(f"  {mpi:8} {fault:9} median {statistics.median(worst):4.0f} ms, worst of {rounds} {max(worst):4.0f} ms")


def start_up():
    """Added to a program that knows nothing of MPI."""
    times = {"": [], library: []}
    for _ in range(200):
        for preload in times:
            begin = time.monotonic()
            subprocess.run(["/bin/true"], env=dict(os.environ, LD_PRELOAD=preload))
            times[preload].append(time.monotonic() - begin)
    plain, with_it = (statistics.median(times[one]) * 1000 for one in ("", library))
    print(f"/bin/true: {plain:.2f} ms without, {with_it:.2f} ms with the library, x{with_it / plain:.2f}")


def trainer(batch, options, words=()):
    command = [build + "/accelrun", *options, "tests/programs/spawn.py", "4", build + "/programs/nccl/trainer",
               "--batch", str(batch), "--accum", "1", *words]
    environment = dict(os.environ, ACCEL_STANDIN_GPU_MEMORY="48M", ACCEL_LOG_FILE="/dev/null")
    begin = time.monotonic()
    subprocess.run(command, env=environment, capture_output=True)
    return time.monotonic() - begin


def debug_log():
    """What a logged call costs its caller: beside no library at all, and a program that prints the line itself."""
    def own(variables):
        command = ["mpirun.openmpi", "--bind-to", "none", "-n", "1", f"{build}/bench/openmpi/latency", "25"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, **variables))
        return float(done.stdout.split()[0])
    with tempfile.TemporaryDirectory() as place:
        debug = {"LD_PRELOAD": library, "ACCEL_LOG_LEVEL": "DEBUG", "ACCEL_LOG_FILE": place + "/log"}
        added = []
        for _ in range(rounds):
            plain = own({})
            added.append((own({"LD_PRELOAD": library}) - plain, own(debug) - plain))
            os.remove(place + "/log")
    off, on = (statistics.median(pair[i] for pair in added) for i in (0, 1))
    print(f"log: {off:+.0f} ns a call without one, {on:+.0f} ns with ACCEL_LOG_LEVEL=DEBUG (on the caller's thread)")


def inspect():
    """Reading the records of 1,000 ranks with 100,000 collectives each, beside cat."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([build + "/bench/synthetic_run", place, "1000", "100000"], check=True)
        def measure(command):
            with open(os.devnull, "w") as nothing:
                child = subprocess.Popen(command, stdout=nothing)
                begin = time.monotonic()
                _, status, usage = os.wait4(child.pid, 0)
                if status != 0:
                    sys.exit(f"{' '.join(command)}: status {status}")
                return time.monotonic() - begin, usage.ru_maxrss / 1024
        plain, _ = measure(["sh", "-c", f"cat {place}/*"])
        variants = {"inspect": [], "inspect --html": ["--html", place + "/page"],
                    "inspect --trace": ["--trace", place + "/trace"]}
        for name, words in variants.items():
            seconds, mib = measure([build + "/accelrun", "inspect", place, *words])
            print(f"{name}, 1,000 ranks x 100,000 records: {seconds:.1f} s, x{seconds / plain:.1f} of cat, {mib:.0f} MiB")


def retries():
    """What lies between two attempts: four in one accelrun against the same four, each on its own."""
    between = []
    for _ in range(rounds):
        together = trainer(256, ["--batch", "arg:--batch", "--accum", "arg:--accum"])
        alone = sum(trainer(batch, []) for batch in (256, 128, 64, 32))
        between.append((together - alone) / 3 * 1000)
    print(f"retry: {statistics.median(between):+.0f} ms between two attempts, beyond the job's own end and start")


def hosts():
    """Two hosts (namespaces of this machine): a call between them, and what goes over the wire besides."""
    over = "mpiexec.mpich -launcher ssh -launcher-exec $NODES_AGENT -iface eth0 -hosts node1,node2 -n 2"
    def measure(before, program):
        # What node2 has sent and received, in bytes, while the job ran.
        count = "on node2 cat /sys/class/net/eth0/statistics/tx_bytes /sys/class/net/eth0/statistics/rx_bytes"
        script = f"{count}; {before} {over} {program}; {count}"
        done = subprocess.run(["tests/nodes.sh", "2", "sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"{script}: status {done.returncode}\n{done.stdout}{done.stderr}")
        words = [float(word) for word in done.stdout.split()]
        return words[2:-2], sum(words[-2:]) - sum(words[:2])
    accelrun = f"ACCEL_LOG_FILE=/dev/null {build}/accelrun"
    ratios = []
    for _ in range(rounds):
        plain, _ = measure("", f"{build}/bench/mpich/latency 5")
        with_it, _ = measure(accelrun, f"{build}/bench/mpich/latency 5")
        ratios.append((with_it[1] / plain[1], with_it[2] / plain[2]))
    program = f"{build}/programs/mpich/steps {{}} slow=1:10000 self"
    short, long = (measure(accelrun, program.format(steps))[1] - measure("", program.format(steps))[1]
                   for steps in (100, 1600))
    print(f"two hosts: 8 B x{statistics.median(a for a, _ in ratios):.2f}   "
          f"64 KiB x{statistics.median(b for _, b in ratios):.3f}; {(long - short) / 15:.0f} B/s a host, both ways, "
          "with all headers")


def output():
    """A GiB of stderr to a reader that throws it away, as ratios to the program alone."""
    program = [sys.executable, "-c", "import sys\nline = '.' * 120 + '\\n'\nblock = line * 8192\n"
               "for _ in range((1 << 30) // len(block)): sys.stderr.write(block)"]
    def measure(command, rank):
        environment = dict(os.environ, ACCEL_LOG_FILE="/dev/null", **rank)
        begin = time.monotonic()
        with subprocess.Popen(command + program, env=environment, stderr=subprocess.PIPE) as job:
            while job.stderr.read(1 << 20):
                pass
        return time.monotonic() - begin
    rank = {"RANK": "0", "WORLD_SIZE": "1"}
    ratios = {"accelrun": [], "accelrun --tag-output": []}
    plain = []
    for _ in range(max(rounds // 3, 1)):
        plain.append(measure([], {}))
        for name in ratios:
            ratios[name].append(measure([build + "/accelrun", *name.split()[1:]], rank) / plain[-1])
    print(f"1 GiB of stderr: alone {1024 / statistics.median(plain):.0f} MiB/s", end="")
    for name, values in ratios.items():
        print(f", {name} x{statistics.median(values):.2f}", end="")
    print()


subprocess.run([build + "/bench/record", "--benchmark_format=console"], check=True)
for name in launchers:
    compare(name)
print("from the last rank's call to the report, 4 ranks:")
for name in launchers:
    for kind in ("op", "kind", "cycle", "finalize"):
        detection(name, kind)
python_sites()
calls()
start_up()
debug_log()
inspect()
retries()
output()
hosts()
