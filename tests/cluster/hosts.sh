# Hosts as network namespaces that a bridge joins, each with a /var/lib of its
# own, and the cluster of README.md's "Two hosts by hand" on them. For scripts:
#
#   build=BUILD_DIR; hosts=(host-a host-b); . hosts.sh
#
# makes them and goes on in their `work` directory; the first host keeps the CA
# and the coordinator. Exits with 77, skipped, without root. At the end of the
# script all is taken away, and the logs are shown where it failed.

if ((EUID != 0)); then
  echo "skipped: network namespaces need root"
  exit 77
fi
work=$(mktemp -d /tmp/lockstep-hosts-XXXXXX)
tag=ls$$
declare -A address

finish() {
  local code=$?
  if ((code != 0)); then
    tail -n 40 "$work"/*.log 2>/dev/null || true
    echo "FAILED"
  fi
  for host in "${hosts[@]}"; do
    ip netns pids "$tag-$host" 2>/dev/null | xargs -r kill -KILL || true
    ip netns del "$tag-$host" 2>/dev/null || true
  done
  ip netns del "$tag-net" 2>/dev/null || true
  wait
  rm -rf -- "$work"
  exit "$code"
}
trap finish EXIT

# on HOST COMMANDS: a shell on that host. BOOT, where it is set, is a file with
# the id of its boot.
on() {
  local host=$1
  shift
  mkdir -p "$work/$host/var-lib"
  ip netns exec "$tag-$host" unshare --mount bash -euc "
    mount --bind '$work/$host/var-lib' /var/lib
    if [[ -n '${BOOT-}' ]]; then
      mount --bind '${BOOT-}' /proc/sys/kernel/random/boot_id
    fi
    export PATH='$build/bin:$PATH' HOME='$work/$host' USER=alice
    unset XDG_CONFIG_HOME LOCKSTEP_ADDRESS
    cd '$work/$host'
    $*"
}

wait_for() {  # wait_for SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >"$work/waiting" 2>&1; do
    if ((SECONDS > until)); then
      echo "not within time: $what"
      cat "$work/waiting"
      return 1
    fi
    read -r -t 0.1 <> <(:) || true
  done
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# The hosts' links: the end on the bridge is called as the host.
link() {  # link HOST up|down
  ip -n "$tag-net" link set "$1" "$2"
}

# cut FROM TO: TO gets no packet of FROM any more, and neither learns it.
cut() {
  ip netns exec "$tag-$2" iptables -w -A INPUT -s "${address[$1]}" -j DROP
}
mend() {  # mend FROM TO
  ip netns exec "$tag-$2" iptables -w -D INPUT -s "${address[$1]}" -j DROP
}

ip netns add "$tag-net"
ip -n "$tag-net" link add bridge type bridge forward_delay 0
ip -n "$tag-net" link set bridge up
number=0
for host in "${hosts[@]}"; do
  number=$((number + 1))
  address[$host]=192.0.2.$number
  ip netns add "$tag-$host"
  mkdir -p "$work/$host"
  ip -n "$tag-$host" link set lo up
  ip link add data netns "$tag-$host" type veth peer name "$host" \
    netns "$tag-net"
  ip -n "$tag-net" link set "$host" master bridge up
  ip -n "$tag-$host" address add "${address[$host]}/24" dev data
  ip -n "$tag-$host" link set data up
done
first=${hosts[0]}

# The cluster's CA; the folder `key` of a host is what its daemon needs.
on "$first" "lockstep init --cluster lab
lockstep cert issue user alice --role admin" >"$work/init.log"
for host in "${hosts[@]}"; do
  on "$first" "lockstep cert issue worker $host" >>"$work/init.log"
  cp -r "$work/$first/.config/lockstep/pki/worker-$host" "$work/$host/key"
done
pki=$work/$first/.config/lockstep/pki

coordinator() {  # coordinator FLAGS: runs it.
  on "$first" "cd '$pki/coordinator'
exec lockstep-coordinator --dir /var/lib/lockstep --cluster lab \
  --listen 0.0.0.0:7443 --ca ca.crt --cert tls.crt --key tls.key $*" \
    >>"$work/coordinator.log" 2>&1
}

# worker HOST [FLAGS]: runs its daemon.
worker() {
  local host=$1
  shift
  on "$host" "cd key
exec lockstep-worker --dir /var/lib/lockstep-worker \
  --coordinator ${address[$first]}:7443 \
  --ca ca.crt --cert tls.crt --key tls.key $*" \
    >>"$work/worker-$host.log" 2>&1
}

# user COMMANDS: as the cluster's admin.
user() {
  on "$first" "cd '$pki/user-alice'
export LOCKSTEP_ADDRESS=${address[$first]}:7443 LOCKSTEP_CA=\$PWD/ca.crt \
  LOCKSTEP_CERT=\$PWD/tls.crt LOCKSTEP_KEY=\$PWD/tls.key
$*"
}
# has PATTERN: reads all of its input, as whoever writes it must not be cut off.
has() { (($(tee /dev/stderr | grep -c -- "$1") > 0)); }
ready() {  # ready NUMBER: so many nodes are.
  (($(user lockstep nodes list | tee /dev/stderr | grep -c READY) == $1))
}

# value JOB FIELD: of the job, by jq's path.
value() { user lockstep jobs describe "$1" -o json | python3 -c "
import json, sys
value = json.load(sys.stdin)['lockstep']
for name in '$2'.split('.'):
    value = value[int(name)] if isinstance(value, list) else value.get(name, '')
print(value)"; }
# rank_of JOB RANK FIELD: of its status; node: of its task.
rank_of() { user lockstep jobs describe "$1" -o json | python3 -c "
import json, sys
for task in json.load(sys.stdin)['lockstep']['tasks']:
    for rank in task['ranks']:
        if int(rank.get('rank', 0)) == $2:
            print(task['node'] if '$3' == 'node' else rank.get('$3', 0))"; }
state_is() { [[ $(value "$1" state | tee /dev/stderr) == "JOB_STATE_$2" ]]; }
step_over() { (($(value "$1" progress.chief.committedStep | tee /dev/stderr) > $2)); }
node_is() { user lockstep nodes describe "$1" | has "$2"; }
chief_of() { value "$1" tasks.0.node; }

# event_ms JOB SINCE PATTERN: when the job's first event since then that has the
# pattern (Python's) in "REASON: MESSAGE" came, in ms by the coordinator's clock;
# fails where there is none.
event_ms() { user lockstep jobs describe "$1" -o json | python3 -c "
import datetime, json, re, sys
for event in json.load(sys.stdin)['lockstep'].get('events', []):
    time = datetime.datetime.fromisoformat(event['time'])
    ms = int(time.timestamp() * 1000)
    text = event.get('reason', '') + ': ' + event.get('message', '')
    if ms >= int(sys.argv[1]) and re.search(sys.argv[2], text):
        print(ms)
        sys.exit()
sys.exit('no such event')" "$2" "$3"; }

# same_as_whole JOB STEPS: the job, of step_program, ended with the weights of a
# run on one host without any fault, to the bit.
same_as_whole() {
  local hash whole
  hash=$(hash_of "$1" "$2")
  if ! user lockstep jobs describe "whole-$2" >/dev/null 2>&1; then
    user lockstep submit --name "whole-$2" --kind native \
      --cpus "$(nproc)" --detach -- "$build/tests/step_program" --steps "$2"
  fi
  wait_for 120 "whole-$2 ends" state_is "whole-$2" SUCCEEDED
  whole=$(hash_of "whole-$2" "$2")
  echo "$1: $hash"
  [[ -n $hash && $hash == "$whole" ]] || {
    echo "the weights are not those of a run without faults: $whole"
    return 1
  }
}
hash_of() {  # hash_of JOB STEPS: the last words of its ranks; one line if equal.
  local said=$work/$1.said
  # What a host that died had not sent is missed, and said.
  user lockstep jobs logs "$1" >"$said" 2>&1 || tail -n 3 "$said" >&2
  { grep -o "done $2 skipped 0 hash .*" "$said" || true; } | sort -u
}
