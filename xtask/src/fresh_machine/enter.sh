#!/bin/sh
# Runs "$@" with the folder $1 as root file system, in a mount namespace of its own: programs of the machine are absent, its
# kernel, network and Rust toolchain are present. $2 is the folder of toolchains.
set -e
root=$1 toolchains=$2
shift 2
mount --make-rprivate /
# pivot_root(2) takes mount points only.
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/build/.rustup" "$root/old"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$toolchains" "$root/build/.rustup"
mount -o remount,bind,ro "$root/build/.rustup"
cd "$root"
pivot_root . old
umount -l /old
cd /build/project
exec env -i HOME=/build USER=root TERM=dumb CI=1 LANG=C.UTF-8 \
    PATH=/build/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
