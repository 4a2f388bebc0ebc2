#!/bin/busybox sh
# Init of the virtual machines: runs the steps in order, prints each on the console, and powers off.
# The host knows what each step must show: `check.rs`.

# `setpriv` is there already, and stays.
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
# What the kernel says must not stand between the lines of a step; a panic still does. What it said while it started
# is about the emulation.
dmesg -n 1
dmesg -c >/dev/null

# By its path: busybox has one that knows less.
setpriv=/bin/setpriv
as_user="$setpriv --reuid 1000 --regid 1000 --clear-groups"

# step NAME COMMAND...: what it printed, what it said, how it ended. A step that hangs costs itself only. Verifying the programs of
# `--off-cpu --wakers`, 0.3 s on a real CPU, takes half a minute here.
step() {
    name=$1
    shift
    timeout -s KILL 60 "$@" >/tmp/printed 2>/tmp/said
    code=$?
    echo "== step $name $code"
    cat /tmp/printed
    echo "== said"
    cat /tmp/said
    echo "== end"
}

# start WORKLOAD: runs it until `stop`; its id is $pid.
start() {
    "$@" 100 >/tmp/ready &
    pid=$!
    until grep -q ready /tmp/ready; do usleep 10000; done
}

stop() {
    kill -KILL $pid
    wait $pid
}

# step_without CAPABILITY NAME COMMAND...: a step as root, but for a capability.
step_without() {
    capability=$1
    name=$2
    shift 2
    step "$name" $setpriv --bounding-set "-$capability" --inh-caps "-$capability" "$@"
}

sysctl() {
    echo "$2" >/proc/sys/kernel/"$1"
}

echo
echo "== kernel $(uname -r)"
sysctl perf_event_paranoid 2
sysctl kptr_restrict 0
step doctor profiler doctor

# The emulated CPU is slow: without a higher limit of the overhead ticks are skipped.
start shares-static
step shares profiler -p $pid -F 999 --max-overhead 100 -d 3
stop

start chain-frameless
step frameless profiler -p $pid -F 999 --max-overhead 100 -d 2
stop

start libraries-musl
step musl profiler -p $pid -F 999 --max-overhead 100 -d 2
stop

start syscalls
step kernel profiler -p $pid -F 999 --max-overhead 100 -d 1
step with-cpu profiler -p $pid -F 999 --wall --max-overhead 100 -d 500ms
step tracepoint profiler -p $pid --syscalls --max-overhead 100 -d 500ms
step uprobe profiler -p $pid -e uprobe:/bin/syscalls:read_zeros --max-overhead 100 -d 500ms
stop

start waits
step wall profiler -p $pid --wall --max-overhead 100 -d 2
step off-cpu profiler -p $pid --off-cpu --wakers --max-overhead 100 -d 2
stop

step command profiler -F 999 --max-overhead 100 -- shortlived 1
step faults profiler -e page-faults --max-overhead 100 -- shortlived 1

start forkstorm
step children profiler -p $pid -F 999 --max-overhead 100 --children -d 1
forkstorm 100 >/dev/null &
other=$!
step storm profiler -a -F 999 --max-overhead 100 -d 2
kill -KILL $other
stop

start shares-static
sysctl perf_event_paranoid 3
step user $as_user profiler -p $pid -d 500ms
step user-doctor $as_user profiler doctor
step_without sys_admin paranoid-3 profiler -p $pid -d 500ms
sysctl perf_event_paranoid 2
step_without sys_admin paranoid-2 profiler -p $pid -U -F 999 --max-overhead 100 -d 500ms
sysctl kptr_restrict 1
step_without syslog kptr-1 profiler doctor
sysctl kptr_restrict 2
step kptr-2 profiler doctor
sysctl kptr_restrict 0
ulimit -l 64
step memlock-raised profiler -p $pid -U -F 999 --max-overhead 100 -d 500ms
step_without sys_resource memlock profiler -p $pid -U -F 999 --max-overhead 100 -d 500ms
stop

step kernel-log dmesg
echo "== done"
reboot -f
