//! The stacks in what profilers write, and whether they are the right ones.

/// Frames, leaf first, and how many samples have them.
pub(crate) type Stack = (Vec<String>, u64);

/// The calls that the workload `chain` is in, leaf first.
fn chain() -> Vec<String> {
    const LINKS: u32 = 21;
    let links = (1..=LINKS).rev().map(|number| format!("link_{number:02}"));
    let ends = |name: &str| [name.to_owned()];
    ends("leaf").into_iter().chain(links).chain(ends("run")).chain(ends("main")).collect()
}

/// The share of samples that hold every call of the workload `chain`, one behind the other.
pub(super) fn exact_share(stacks: &[Stack]) -> f64 {
    let chain = chain();
    let is_exact = |frames: &[String]| frames.windows(chain.len()).any(|window| window == chain);
    let exact: u64 = stacks.iter().filter(|(frames, _)| is_exact(frames)).map(|(_, count)| count).sum();
    exact as f64 / samples(stacks).max(1) as f64
}

pub(crate) fn samples(stacks: &[Stack]) -> u64 {
    stacks.iter().map(|(_, count)| count).sum()
}

/// `comm;root;...;leaf N`.
pub(crate) fn of_folded(text: &str) -> Vec<Stack> {
    let stack = |line: &str| {
        let (frames, count) = line.rsplit_once(' ')?;
        Some((frames.split(';').rev().map(str::to_owned).collect(), count.parse().ok()?))
    };
    text.lines().filter_map(stack).collect()
}

/// `perf script -F comm,ip,sym`: the name of the thread, a line `address symbol` a frame, an empty line.
pub(super) fn of_perf_script(text: &str) -> Vec<Stack> {
    let frame = |line: &str| Some(line.trim().split_once(' ')?.1.to_owned());
    let samples = text.split("\n\n").filter(|sample| !sample.trim().is_empty());
    samples.map(|sample| (sample.trim_matches('\n').lines().skip(1).filter_map(frame).collect(), 1)).collect()
}

/// bpftrace's way to print a map with stacks as keys: `@[`, a line `symbol+offset` a frame, `, `, `]: N`.
pub(super) fn of_bpftrace(text: &str) -> Vec<Stack> {
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
    fn a_sample_is_exact_when_no_call_is_missing() {
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
    fn samples_of_perf_script_are_stacks() {
        let text = "chain \n\t  11b6 leaf\n\t  11e1 link_21\n\nchain \n\t  11b6 leaf\n\n";
        let stacks = of_perf_script(text);
        assert_eq!(stacks[0], (vec!["leaf".to_owned(), "link_21".to_owned()], 1));
        assert_eq!(samples(&stacks), 2);
    }

    #[test]
    fn maps_of_bpftrace_are_stacks() {
        let text = "Attaching 2 probes...\n\n\n@[\n    leaf+45\n    main+14\n, \n    do_poll+7\n]: 125\n";
        let frames = ["leaf", "main", "do_poll"].map(str::to_owned).to_vec();
        assert_eq!(of_bpftrace(text), [(frames, 125)]);
    }
}
