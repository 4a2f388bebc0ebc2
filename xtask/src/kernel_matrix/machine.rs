//! Runs a virtual machine from power on to power off.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{folder, image::Image, transcript};

/// Several times what it takes; a machine that hangs is ended then.
const TIME_LIMIT_SECONDS: &str = "140";

/// The self-tests of the kernel's cryptography would take the CPU for the first seconds.
const KERNEL_OPTIONS: &str = "console=ttyS0 panic=-1 quiet cryptomgr.notests";

/// The machine's time goes by its instructions, two nanoseconds (as a power of two) each, and not at all while it
/// waits: what it measures is the same on a busy host.
const NANOSECONDS_PER_INSTRUCTION: &str = "shift=1,sleep=off";

/// An emulated machine sometimes does not get through a kernel's start.
const ATTEMPTS: usize = 2;

/// Runs a kernel to its end. Returns what it wrote to the console, and how long it took.
pub(super) fn boot(image: &Image, initramfs: &Path) -> Result<(String, Duration)> {
    let log = folder().join(format!("{}.log", image.release));
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        run(image, initramfs, &log)?;
        let console = String::from_utf8_lossy(&fs::read(&log)?).replace('\r', "");
        if transcript::is_complete(&console) {
            return Ok((console, start.elapsed()));
        }
        println!("Linux {}: not at its end after {:.0} s", image.release, start.elapsed().as_secs_f64());
    }
    bail!("the virtual machine did not reach its end, {ATTEMPTS} times: {}", log.display())
}

/// How it ends shows in the log.
fn run(image: &Image, initramfs: &Path, log: &Path) -> Result<()> {
    let output = File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
    let mut machine = Command::new("timeout");
    machine.args(["--foreground", "--signal=KILL", TIME_LIMIT_SECONDS, "qemu-system-x86_64"]);
    // One CPU: with several, a kernel that patches itself can trip over the emulation.
    machine.args(["-M", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "768"]);
    machine.args(["-icount", NANOSECONDS_PER_INSTRUCTION]);
    machine.args(["-nodefaults", "-nographic", "-serial", "stdio", "-monitor", "none"]);
    machine.args(["-no-reboot", "-net", "none", "-append", KERNEL_OPTIONS]);
    machine.arg("-kernel").arg(&image.path).arg("-initrd").arg(initramfs);
    machine.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    machine.status().context("failed to start a virtual machine")?;
    Ok(())
}
