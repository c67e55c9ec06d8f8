#!/bin/sh
# slurm.sh COMMAND...: runs it where srun works: a Slurm of this machine alone, with the distribution's daemons, in a
# directory of its own. As root.
set -eu
place=$(mktemp -d)
host=$(hostname -s)
stop() {
  for daemon in slurmd slurmctld munged; do
    [ -e "$place/$daemon.pid" ] && kill "$(cat "$place/$daemon.pid")" 2>/dev/null || true
  done
  sleep 1
  rm -rf "$place"
}
trap stop EXIT
chmod 755 "$place"
mkdir -m 755 "$place/munge" "$place/state" "$place/spool"
head -c 1024 /dev/urandom >"$place/munge/key"
chmod 400 "$place/munge/key"
munged --force --key-file "$place/munge/key" --socket "$place/munge/socket" --pid-file "$place/munged.pid" \
  --log-file "$place/munged.log" --seed-file "$place/munge/seed" 2>/dev/null
cat >"$place/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$place/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$place/slurm.conf"
slurmctld
slurmd -N "$host"
for _ in $(seq 100); do
  sinfo -h -o %t 2>/dev/null | grep -q idle && break
  sleep 0.2
done
"$@"
