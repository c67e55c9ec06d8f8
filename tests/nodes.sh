#!/bin/sh
# nodes.sh COUNT COMMAND...: runs the command on the first of COUNT hosts that are namespaces of this machine: node1,
# node2, ... with a name, a network and a /dev/shm of its own each. As root. In the command's environment:
#   NODES_AGENT   starts a command on another host, as ssh does: for mpirun
#   NODES         a directory: HOST.pid is a process whose namespaces are the host's
# "on HOST COMMAND..." and "cut HOST", "heal HOST", "crash HOST" are in its PATH.
set -eu
if [ "${1-}" != --inside ]; then exec unshare --net --mount --propagation private "$0" --inside "$@"; fi
shift
count=$1
shift
NODES=$(mktemp -d)
export NODES
cleanup() {
  for file in "$NODES"/*.pid; do
    "$NODES/bin/crash" "$(basename "$file" .pid)" 2>/dev/null || true
  done
  rm -rf "$NODES"
}
trap cleanup EXIT
mkdir "$NODES/bin"
cat >"$NODES/bin/on" <<'ON'
#!/bin/sh
# As ssh is called: on [-x] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --target "$(cat "$NODES/$host.pid")" --net --uts --mount --wd=/ sh -c "$*"
ON
cat >"$NODES/bin/cut" <<'CUT'
#!/bin/sh
exec nsenter --target "$(cat "$NODES/$1.pid")" --net ip link set eth0 down
CUT
cat >"$NODES/bin/heal" <<'HEAL'
#!/bin/sh
exec nsenter --target "$(cat "$NODES/$1.pid")" --net ip link set eth0 up
HEAL
cat >"$NODES/bin/crash" <<'CRASH'
#!/bin/sh
# All at once, as when the power fails; not even a packet is left to say so.
inside=$(readlink "/proc/$(cat "$NODES/$1.pid")/ns/uts")
nsenter --target "$(cat "$NODES/$1.pid")" --net ip link set eth0 down
for process in /proc/[0-9]*; do
  [ "$(readlink "$process/ns/uts" 2>/dev/null)" = "$inside" ] && kill -9 "${process#/proc/}" 2>/dev/null
done
exit 0
CRASH
chmod +x "$NODES"/bin/*
NODES_AGENT=$NODES/bin/on
PATH=$NODES/bin:$PATH
export NODES_AGENT PATH
ip link set lo up
ip link add cluster type bridge
ip link set cluster up
echo "127.0.0.1 localhost" >"$NODES/hosts"
for i in $(seq "$count"); do echo "10.77.0.$i node$i" >>"$NODES/hosts"; done
for i in $(seq "$count"); do
  unshare --net --uts --mount --propagation private sh -c '
    hostname "$0"
    mount -t tmpfs tmpfs /dev/shm
    mount --bind "$NODES/hosts" /etc/hosts
    touch "$NODES/$0.up"
    exec sleep 100000' "node$i" </dev/null >/dev/null 2>&1 &
  echo $! >"$NODES/node$i.pid"
  while [ ! -e "$NODES/node$i.up" ]; do sleep 0.01; done
  ip link add "link$i" type veth peer name eth0 netns $!
  ip link set "link$i" master cluster up
  nsenter --target $! --net sh -c "ip link set lo up; ip addr add 10.77.0.$i/24 dev eth0; ip link set eth0 up"
done
status=0
nsenter --target "$(cat "$NODES/node1.pid")" --net --uts --mount --wd="$PWD" "$@" || status=$?
exit $status
