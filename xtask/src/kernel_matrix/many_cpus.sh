#!/bin/busybox sh
# Init of the virtual machine with many CPUs: samples all of them, prints what the profiler uses, and powers off.
# The host knows what must be printed: `many_cpus.rs`.

/bin/busybox --install -s /bin 2>/dev/null
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
dmesg -n 1

# step NAME COMMAND...: what it printed, and how it ended.
step() {
    name=$1
    shift
    "$@" >/tmp/printed 2>&1
    code=$?
    echo "== step $name $code"
    cat /tmp/printed
    echo "== said"
    echo "== end"
}

available_kib() {
    awk '/^MemAvailable/ { print $2 }' /proc/meminfo
}

# The BPF maps of a process, each once, though it may have several descriptors.
map_bytes() {
    cat /proc/"$1"/fdinfo/* | awk '
        /^memlock:/ { bytes = $2 }
        /^map_id:/ { maps[$2] = bytes }
        END { for (id in maps) sum += maps[id]; print sum }'
}

echo
echo "== kernel $(uname -r)"
step possible cat /sys/devices/system/cpu/possible
step online cat /sys/devices/system/cpu/online
shares-static 100 >/dev/null &

before_kib=$(available_kib)
timeout -s KILL 100 profiler -a -vv -d 15 >/tmp/folded 2>/tmp/log &
timeout=$!
until grep -q "sampling begins" /tmp/log || ! kill -0 $timeout; do usleep 100000; done
during_kib=$(available_kib)
pid=$(pidof profiler)
step map-bytes map_bytes "$pid"
step machine-kib echo $((before_kib - during_kib))
step resident-kib awk '/^VmRSS/ { print $2 }' /proc/"$pid"/status
wait $timeout
step exit-code echo $?
step summary grep "samples in" /tmp/log
echo "== done"
reboot -f
