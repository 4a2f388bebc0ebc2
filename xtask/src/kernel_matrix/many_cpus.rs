//! Samples a virtual machine with many CPUs: perf events of each, and BPF maps that grow with their number.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{
    image::Image,
    machine::{self, Machine},
    transcript::Transcript,
};

/// As many as an emulated machine starts in a minute or so.
const ONLINE_CPUS: u32 = 32;

/// The most of QEMU's machine type `pc`.
const POSSIBLE_CPUS: u32 = 255;

/// Boots the kernel with many CPUs, and returns a line with what the profiler used.
pub(super) fn run(image: &Image, initramfs: &Path) -> Result<String> {
    let cpus = format!("{ONLINE_CPUS},maxcpus={POSSIBLE_CPUS}");
    let machine = Machine {
        name: "many-cpus",
        init: "/many-cpus",
        // With an emulated clock, QEMU runs one CPU at a time, which does not start as many in minutes.
        options: &["-smp", &cpus, "-m", "1536", "-accel", "tcg,thread=multi"],
    };
    let (console, time) = machine::boot(&machine, image, initramfs)?;
    report(&Transcript::parse(&console), time)
}

fn report(transcript: &Transcript, time: Duration) -> Result<String> {
    let printed = |name| Ok::<_, anyhow::Error>(transcript.step(name)?.printed.trim());
    let kib =
        |name| -> Result<u64> { printed(name)?.parse().with_context(|| format!("{name} is no number")) };
    let (online, possible) = (printed("online")?, printed("possible")?);
    ensure!(online == range(ONLINE_CPUS), "the CPUs {online} are online");
    ensure!(possible == range(POSSIBLE_CPUS), "the CPUs {possible} are possible");
    ensure!(printed("exit-code")? == "0", "the profiler ended with {}", printed("exit-code")?);
    let summary = printed("summary")?;
    ensure!(summary.ends_with(", 0 lost"), "{summary}");
    Ok(format!(
        "Linux {}, {ONLINE_CPUS} of {POSSIBLE_CPUS} possible CPUs online: {summary}; BPF maps {} KiB, resident {} KiB, \
         machine {} KiB; {:.0} s",
        transcript.kernel,
        kib("map-bytes")? >> 10,
        kib("resident-kib")?,
        kib("machine-kib")?,
        time.as_secs_f64()
    ))
}

/// The kernel's list of the first CPUs.
fn range(cpus: u32) -> String {
    format!("0-{}", cpus - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(summary: &str, online: &str) -> Transcript {
        let steps = [
            ("possible", "0-254"),
            ("online", online),
            ("map-bytes", "10485760"),
            ("machine-kib", "30000"),
            ("resident-kib", "20000"),
            ("exit-code", "0"),
            ("summary", summary),
        ];
        let step = |(name, printed)| format!("== step {name} 0\n{printed}\n== said\n== end\n");
        Transcript::parse(&format!("== kernel 6.1.0\n{}== done\n", steps.map(step).concat()))
    }

    #[test]
    fn a_sampled_machine_is_reported_with_its_memory() {
        let line = report(&transcript("profiler: 9 samples in 2.0 s of x, 0 lost", "0-31"), Duration::ZERO);
        assert!(line.unwrap().contains("BPF maps 10240 KiB"));
    }

    #[test]
    fn lost_samples_and_missing_cpus_are_failures() {
        let lost = transcript("profiler: 9 samples in 2.0 s of x, 3 lost (ring buffer)", "0-31");
        assert!(report(&lost, Duration::ZERO).unwrap_err().to_string().contains("3 lost"));
        let missing = transcript("profiler: 9 samples in 2.0 s of x, 0 lost", "0-7");
        assert!(report(&missing, Duration::ZERO).unwrap_err().to_string().contains("0-7"));
    }
}
