//! Runs a virtual machine from power on to power off.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use fs_err as fs;

use super::{folder, image::Image, transcript};

/// Several times what it takes; a machine that hangs is ended then.
const TIME_LIMIT_SECONDS: &str = "600";

/// The self-tests of the kernel's cryptography would take the CPU for the first seconds.
const KERNEL_OPTIONS: &str = "console=ttyS0 panic=-1 quiet cryptomgr.notests";

/// A kind of machine.
pub(super) struct Machine<'a> {
    /// Tells its log from the logs of other machines with the same kernel.
    pub(super) name: &'a str,
    /// The script in the initramfs that runs in it.
    pub(super) init: &'a str,
    /// QEMU's options for CPUs, memory and accelerator.
    pub(super) options: &'a [&'a str],
}

/// The machine of the matrix.
///
/// One CPU: with several, a kernel that patches itself can trip over the emulation. Its time goes by its instructions,
/// two nanoseconds (as a power of two) each, and not at all while it waits: what it measures is the same on a busy host.
pub(super) const OF_MATRIX: Machine<'_> = Machine {
    name: "matrix",
    init: "/init",
    options: &["-smp", "1", "-m", "768", "-accel", "tcg", "-icount", "shift=1,sleep=off"],
};

/// An emulated machine sometimes does not get through a kernel's start.
const ATTEMPTS: usize = 2;

/// Runs a kernel to its end. Returns what it wrote to the console, and how long it took.
pub(super) fn boot(machine: &Machine<'_>, image: &Image, initramfs: &Path) -> Result<(String, Duration)> {
    let log = folder().join(format!("{}-{}.log", image.release, machine.name));
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        run(machine, image, initramfs, &log)?;
        let console = String::from_utf8_lossy(&fs::read(&log)?).replace('\r', "");
        if transcript::is_complete(&console) {
            return Ok((console, start.elapsed()));
        }
        println!("Linux {}: not at its end after {:.0} s", image.release, start.elapsed().as_secs_f64());
    }
    bail!("the virtual machine did not reach its end, {ATTEMPTS} times: {}", log.display())
}

/// How it ends shows in the log.
fn run(machine: &Machine<'_>, image: &Image, initramfs: &Path, log: &Path) -> Result<()> {
    let output = fs::File::create(log)?.into_file();
    let mut qemu = Command::new("timeout");
    qemu.args(["--foreground", "--signal=KILL", TIME_LIMIT_SECONDS, "qemu-system-x86_64"]);
    qemu.args(["-M", "pc", "-cpu", "max"]).args(machine.options);
    qemu.args(["-nodefaults", "-nographic", "-serial", "stdio", "-monitor", "none"]);
    let append = format!("{KERNEL_OPTIONS} rdinit={}", machine.init);
    qemu.args(["-no-reboot", "-net", "none", "-append", &append]);
    qemu.arg("-kernel").arg(&image.path).arg("-initrd").arg(initramfs);
    qemu.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    qemu.status().context("failed to start a virtual machine")?;
    Ok(())
}
