//! Parses the stacks that profilers write, and checks them against known call chains.

/// Frames, leaf first, and the number of samples.
pub(crate) type Stack = (Vec<String>, u64);

/// The calls of the workload `chain`, leaf first.
fn chain() -> Vec<String> {
    const LINKS: u32 = 21;
    let links = (1..=LINKS).rev().map(|number| format!("link_{number:02}"));
    let ends = |name: &str| [name.to_owned()];
    ends("leaf").into_iter().chain(links).chain(ends("run")).chain(ends("main")).collect()
}

/// The share of samples that contain every call of the workload `chain` in order.
pub(crate) fn exact_share(stacks: &[Stack]) -> f64 {
    let chain = chain();
    share(stacks, |frames| frames.windows(chain.len()).any(|window| window == chain))
}

/// The entry point of a program, whose frame is recognized by address if it is unsymbolized.
pub(crate) struct Entry {
    /// The name of the program's file.
    pub(crate) file_name: String,
    /// Its address in the file.
    pub(crate) elf_address: u64,
    /// Its address in the process.
    pub(crate) runtime_address: u64,
}

impl Entry {
    /// Whether an unsymbolized frame, `[file+0x1234]`, `[file+0x1234 near symbol]` or `0x1234`, is in the entry
    /// function of the program.
    fn is_at(&self, frame: &str) -> bool {
        let (address, start) = match frame.strip_prefix('[').and_then(|place| place.strip_suffix(']')) {
            Some(place) => match place.strip_prefix(&*self.file_name).and_then(|rest| rest.strip_prefix('+'))
            {
                Some(rest) => (rest.split(' ').next().unwrap_or_default(), self.elf_address),
                None => return false,
            },
            None => (frame, self.runtime_address),
        };
        let address = address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        address.is_some_and(|address| (start..start + START_BYTES).contains(&address))
    }
}

/// An upper bound of the length of `_start` in every C library.
const START_BYTES: u64 = 64;

/// Whether a frame is a root of a process, a thread or a goroutine. Unwinding by frame pointers ends at the first frame of the C
/// library, which is accepted too.
fn is_beginning(frame: &str) -> bool {
    const THREADS: [&str; 5] = ["start_thread", "clone", "__clone", "clone3", "__clone3"];
    // What the scheduler does after a goroutine has left it begins with `mcall`.
    const GO_ROOTS: [&str; 4] = ["runtime.goexit", "runtime.mcall", "runtime.mstart", "runtime.rt0_go"];
    let go_function = frame.strip_suffix(".abi0").unwrap_or(frame);
    frame == "_start"
        || frame.starts_with("__libc_start_")
        || THREADS.contains(&frame)
        || GO_ROOTS.contains(&go_function)
}

/// A function, and the only function that calls it.
pub(crate) type KnownCall = (&'static str, &'static str);

/// The share of samples whose outermost frame is a root of a process or a thread.
pub(crate) fn rooted_share(stacks: &[Stack], entry: &Entry) -> f64 {
    share(stacks, |frames| is_whole(frames, entry))
}

/// The share of samples that are whole, and in which each function of `calls` has its caller.
pub(crate) fn exact_share_of_whole(stacks: &[Stack], entry: &Entry, calls: &[KnownCall]) -> f64 {
    let has_callers = |frames: &[String]| {
        frames.iter().enumerate().all(|(index, frame)| {
            let known = calls.iter().find(|(function, _)| function == frame);
            known.is_none_or(|(_, caller)| frames.get(index + 1).is_some_and(|above| above == caller))
        })
    };
    share(stacks, |frames| is_whole(frames, entry) && has_callers(frames))
}

fn is_whole(frames: &[String], entry: &Entry) -> bool {
    // In a folded line the outermost is the name of the process.
    const OUTERMOST: usize = 2;
    let is_root = |frame: &String| is_beginning(frame) || entry.is_at(frame);
    frames.iter().rev().take(OUTERMOST).any(is_root)
}

/// The mean number of frames per sample.
pub(crate) fn mean_frames(stacks: &[Stack]) -> f64 {
    let frames: u64 = stacks.iter().map(|(frames, count)| frames.len() as u64 * count).sum();
    frames as f64 / samples(stacks).max(1) as f64
}

fn share(stacks: &[Stack], is_meant: impl Fn(&[String]) -> bool) -> f64 {
    let meant: u64 = stacks.iter().filter(|(frames, _)| is_meant(frames)).map(|(_, count)| count).sum();
    meant as f64 / samples(stacks).max(1) as f64
}

pub(crate) fn samples(stacks: &[Stack]) -> u64 {
    stacks.iter().map(|(_, count)| count).sum()
}

/// The format `comm;root;...;leaf N`.
pub(crate) fn of_folded(text: &str) -> Vec<Stack> {
    let stack = |line: &str| {
        let (frames, count) = line.rsplit_once(' ')?;
        Some((frames.split(';').rev().map(str::to_owned).collect(), count.parse().ok()?))
    };
    text.lines().filter_map(stack).collect()
}

/// The format of `perf script -F comm,ip,sym`: the thread name, a line `address symbol` for each frame, an empty
/// line.
pub(crate) fn of_perf_script(text: &str) -> Vec<Stack> {
    let frame = |line: &str| match line.trim().split_once(' ')? {
        (address, "[unknown]") => Some(format!("0x{address}")),
        (_, symbol) => Some(symbol.to_owned()),
    };
    let samples = text.split("\n\n").filter(|sample| !sample.trim().is_empty());
    samples.map(|sample| (sample.trim_matches('\n').lines().skip(1).filter_map(frame).collect(), 1)).collect()
}

/// The format in which bpftrace prints a map with stacks as keys: `@[`, a line `symbol+offset` for each frame, `, `,
/// `]: N`.
pub(crate) fn of_bpftrace(text: &str) -> Vec<Stack> {
    let mut stacks = Vec::new();
    let mut frames = Vec::new();
    for line in text.lines() {
        if line.starts_with("@[") {
            frames.clear();
        } else if let Some((_, count)) = line.split_once("]: ") {
            stacks.push((std::mem::take(&mut frames), count.trim().parse().unwrap_or(0)));
        } else if let Some((symbol, _offset)) = line.trim().rsplit_once('+') {
            frames.push(symbol.to_owned());
        }
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded() -> String {
        let frames: Vec<String> = chain().into_iter().rev().collect();
        format!("chain;_start;{}", frames.join(";"))
    }

    #[test]
    fn a_sample_without_a_missing_call_is_exact() {
        let whole = folded();
        let interrupted = format!("{whole};asm_common_interrupt 1");
        let without_caller = whole.replace(";link_20", "");
        let text = format!("{whole} 7\n{interrupted}\n{without_caller} 2\n");
        let stacks = of_folded(&text);
        assert_eq!(samples(&stacks), 10);
        assert_eq!(exact_share(&stacks), 0.8);
        assert_eq!(exact_share(&[]), 0.0);
    }

    #[test]
    fn a_sample_is_whole_if_its_outermost_frame_is_a_root() {
        let entry =
            Entry { file_name: "java".to_owned(), elf_address: 0x10a0, runtime_address: 0x5555_0000_10a0 };
        let whole = "java;__libc_start_main;main 1\njava;clone3;work 1\njava;[java+0x10a0];main 1\n\
                     java;[java+0x10a0 near c++];main 1\njava;runtime.goexit.abi0;main.main 1\n\
                     java;runtime.mstart;runtime.mstart0 1\n";
        let cut = "java;main 1\njava;[libjvm.so+0x10c5];work 1\njava;[java+0x20a0];main 1\njava;[java] 1\n\
                   java;[unmapped];runtime.goexit.abi0;main.main 1\njava;runtime.systemstack 1\n";
        assert_eq!(rooted_share(&of_folded(&format!("{whole}{cut}")), &entry), 0.5);
        let perf_text = "java \n\t11b6 main\n\t5555000010c5 [unknown]\n\njava \n\t7f00000010c5 [unknown]\n";
        assert_eq!(rooted_share(&of_perf_script(perf_text), &entry), 0.5);
        assert_eq!(mean_frames(&of_perf_script(perf_text)), 1.5);
    }

    #[test]
    fn a_whole_sample_is_exact_if_each_function_has_its_only_caller() {
        let entry = Entry { file_name: String::new(), elf_address: 0x10a0, runtime_address: 0x10a0 };
        let exact = "c;_start;main;run;copy;memcpy 3\nc;_start;main;run 1\nc;_start;[c+0x7] 1\n";
        let others = "c;_start;run;copy 1\nc;_start;main;run;leaves;copy 1\nc;main;run;copy 1\ncopy 2\n";
        let calls = [("run", "main"), ("copy", "run")];
        let share = exact_share_of_whole(&of_folded(&format!("{exact}{others}")), &entry, &calls);
        assert_eq!(share, 0.5);
    }

    #[test]
    fn samples_of_perf_script_are_parsed() {
        let text = "chain \n\t  11b6 leaf\n\t  11e1 link_21\n\nchain \n\t  11b6 leaf\n\n";
        let stacks = of_perf_script(text);
        assert_eq!(stacks[0], (vec!["leaf".to_owned(), "link_21".to_owned()], 1));
        assert_eq!(samples(&stacks), 2);
    }

    #[test]
    fn maps_of_bpftrace_are_parsed() {
        let text = "Attaching 2 probes...\n\n\n@[\n    leaf+45\n    main+14\n, \n    do_poll+7\n]: 125\n";
        let frames = ["leaf", "main", "do_poll"].map(str::to_owned).to_vec();
        assert_eq!(of_bpftrace(text), [(frames, 125)]);
    }
}
