//! Bytes and memory of the encoder for a window of a whole node.
//!
//! The only test of its program: the peak memory is that of the process.

use std::{collections::BTreeMap, fs, time::Instant};

use profiler_addresses::ElfAddress;
use profiler_agent::{Resource, Window, otlp};
use profiler_profile::{
    Event, Frame, FrameId, FrameKind, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization, ThreadId,
};

/// Half of 16 CPUs at 19 Hz for a minute.
const SAMPLES: u64 = 8 * 19 * WINDOW_SECONDS;
const WINDOW_SECONDS: u64 = 60;
const CONTAINERS: u32 = 30;
const PROCESSES: u32 = 100;
const DEPTH: u64 = 32;
const BRANCH_DISTANCE: u64 = 4;
/// The functions of a program at a depth: about a thousand in all.
const FUNCTIONS: u64 = 30;

/// One and a half times the bytes that were measured, and twice the memory.
const MAX_BYTES_PER_SECOND: u64 = 9_000;
const MAX_PEAK_BYTES: u64 = 24 << 20;

#[test]
fn a_window_of_a_node_is_small() {
    let window = node();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, start) = (peak_bytes(), Instant::now());
    let encoded = otlp::encode(&window, &otlp::OtlpOptions::default());
    let (elapsed, grown) = (start.elapsed(), peak_bytes() - before);

    let bytes: u64 = encoded.messages.iter().map(|message| message.body.len() as u64).sum();
    let samples: u64 = encoded.messages.iter().map(|message| message.samples).sum();
    println!(
        "{samples} samples, {} stacks: {} requests, {bytes} bytes, {} a second; {:.0} ms, peak memory {:.1} MB more",
        window.profile().stack_count(),
        encoded.messages.len(),
        bytes / WINDOW_SECONDS,
        elapsed.as_secs_f64() * 1e3,
        grown as f64 / 1e6,
    );
    assert_eq!((samples, encoded.too_large), (SAMPLES, 0));
    assert!(bytes / WINDOW_SECONDS <= MAX_BYTES_PER_SECOND);
    assert!(grown <= MAX_PEAK_BYTES);
}

/// `VmHWM` of `proc_pid_status(5)`.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// A node whose containers run programs of their own. Each fourth function has eight callees,
/// and most calls are to the first one.
fn node() -> Window {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 19));
    let mut random = Random(1);
    let threads: Vec<_> = (0..PROCESSES)
        .map(|pid| {
            let process = builder.process(pid, &format!("service-{}", pid % CONTAINERS));
            builder.thread(process, pid, "worker")
        })
        .collect();
    for time in 0..SAMPLES {
        // Few of the processes are busy.
        let process = random.skewed(u64::from(PROCESSES)) as usize;
        add_sample(&mut builder, &mut random, threads[process], process as u64 % u64::from(CONTAINERS), time);
    }
    let header = Header {
        started_unix_ns: 1_700_000_000_000_000_000,
        duration_ns: WINDOW_SECONDS * 1_000_000_000,
        ..Header::default()
    };
    Window::new(builder.finish(header), |profile, process| {
        let container = profile.process(process).pid % CONTAINERS;
        let attributes = [
            ("service.name", format!("service-{container}")),
            ("container.id", format!("{:064x}", u128::from(container) << 64)),
            ("k8s.namespace.name", "shop".to_owned()),
            ("k8s.pod.name", format!("service-{container}-6d4cf56db6-x7k2p")),
            ("k8s.container.name", "app".to_owned()),
        ];
        let attributes: BTreeMap<_, _> = attributes.map(|(key, value)| (key.to_owned(), value)).into();
        Resource { attributes }
    })
}

fn add_sample(builder: &mut ProfileBuilder, random: &mut Random, thread: ThreadId, program: u64, time: u64) {
    let mut path = program;
    let mut frames: Vec<_> = (0..DEPTH)
        .map(|depth| {
            if depth.is_multiple_of(BRANCH_DISTANCE) {
                path = path.wrapping_mul(8).wrapping_add(random.skewed(8));
            }
            frame(builder, program, depth, Random(path).below(FUNCTIONS))
        })
        .collect();
    frames.reverse();
    let stack = builder.stack(frames, StackEnd::Root);
    builder.sample(time, 0, thread, stack, 1);
}

/// A function of a program at a depth; those of libraries are the same in all programs.
fn frame(builder: &mut ProfileBuilder, program: u64, depth: u64, number: u64) -> FrameId {
    const NAMESPACES: [&str; 6] = [
        "Microsoft.AspNetCore.Http",
        "System.Threading.Tasks",
        "Orders.Domain",
        "System.Text.Json",
        "Orders.Web",
        "Grpc.Core",
    ];
    const CLASSES: [&str; 7] =
        ["Context", "Handler", "Serializer", "Repository", "Pipeline", "Stream", "Controller"];
    const METHODS: [&str; 7] =
        ["InvokeAsync", "MoveNext", "TryRead", "Write", "Execute", "get_Item", "Dispatch"];
    let program = if depth.is_multiple_of(3) { 999 } else { program };
    let mut name = Random(program * 1_000_000 + depth * 1_000 + number);
    let [namespace, class, method] =
        [&NAMESPACES[..], &CLASSES, &METHODS].map(|words| words[name.below(words.len() as u64) as usize]);
    let name =
        format!("{namespace}!{namespace}.{class}{number}.{method}{depth}(System.Object, System.Int32)");
    let name = builder.string(&name);
    let module =
        Some(builder.module(&format!("/srv/{program}/{namespace}.dll"), &program.to_le_bytes().repeat(2)));
    let address = ElfAddress(0x1000 + depth * 0x1_0000 + number * 0x37);
    let symbolization = Symbolization::Symbol(SymbolSource::ReadyToRun);
    builder.frame(Frame {
        name,
        kind: FrameKind::Precompiled,
        module,
        address,
        location: None,
        symbolization,
    })
}

/// A generator of random numbers (Sebastiano Vigna, SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Small numbers are much more frequent.
    fn skewed(&mut self, limit: u64) -> u64 {
        let uniform = self.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        (uniform.powi(4) * limit as f64) as u64
    }
}
