#!/usr/bin/python3
"""spawn.py N PROGRAM...: N ranks, as torchrun starts them: RANK, LOCAL_RANK, WORLD_SIZE; when one fails the others
get SIGTERM, then SIGKILL. Returns the status of the first that failed. With SPAWN_HOST=I/M this is one of M hosts with
N ranks each, which share the directory RENDEZVOUS."""
import os, signal, subprocess, sys, tempfile, time

size, command = int(sys.argv[1]), sys.argv[2:]
host, hosts = map(int, os.environ.get("SPAWN_HOST", "0/1").split("/"))
with tempfile.TemporaryDirectory() as own:
    rendezvous = own if hosts == 1 else os.environ["RENDEZVOUS"]
    ranks = []
    for local in range(size):
        environment = dict(os.environ, RANK=str(host * size + local), LOCAL_RANK=str(local), WORLD_SIZE=str(hosts * size),
                           LOCAL_WORLD_SIZE=str(size), RENDEZVOUS=rendezvous)
        ranks.append(subprocess.Popen(command, env=environment))
    pending, status, deadline = list(ranks), 0, None
    while pending:
        for rank in list(pending):
            code = rank.poll()
            if code is None:
                continue
            pending.remove(rank)
            if code != 0 and status == 0:
                status = code if code > 0 else 128 - code
                deadline = time.monotonic() + 5
                for other in pending:
                    other.send_signal(signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            for other in pending:
                other.kill()
        time.sleep(0.005)
sys.exit(status)
