//! Compares computed rows with the call frame information of libraries on this machine, instruction by instruction.

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use profiler_stack_height::{Cfa, Confidence, Frame, Program, SavedFramePointer, analyze};

use crate::support::{ElfProgram, row_at};

/// RSP and RBP in DWARF (System V ABI AMD64, figure 3.36).
const RSP: Register = Register(7);
const RBP: Register = Register(6);

/// What the CFI states for a range of code.
#[derive(Clone, Copy, Debug)]
struct CfiRow {
    start: u64,
    end: u64,
    function: u64,
    /// `None` where the CFA is an expression.
    cfa: Option<(Register, i64)>,
    /// Where RBP is saved, from the CFA; `None` where it is unchanged.
    rbp: Option<i64>,
    has_rbp_expression: bool,
}

#[derive(Debug, Default)]
struct Agreement {
    instructions: u64,
    equal: u64,
    lost_frame_pointer: u64,
    unknown: u64,
    different: u64,
    low: u64,
    low_different: u64,
    /// The CFA of the two is at different registers.
    incomparable: u64,
    rows: usize,
    examples: BTreeMap<String, (u64, String)>,
    unknown_in: BTreeMap<String, u64>,
    seconds: f64,
    memory_mb: u64,
    code_bytes: u64,
}

fn cfi_rows(program: &ElfProgram) -> Vec<CfiRow> {
    let mut rows = Vec::new();
    let Some(section) = program.eh_frame.clone() else { return rows };
    let Some(bytes) = program.bytes_at(&section) else { return rows };
    let eh_frame = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.start);
    let mut context = UnwindContext::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, bases, offset| eh_frame.cie_from_offset(bases, offset)) else {
            continue;
        };
        let Ok(mut table) = fde.rows(&eh_frame, &bases, &mut context) else { continue };
        while let Ok(Some(row)) = table.next_row() {
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => Some((*register, *offset)),
                CfaRule::Expression(_) => None,
            };
            let (rbp, has_rbp_expression) = match row.register(RBP) {
                Some(RegisterRule::Offset(offset)) => (Some(offset), false),
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (None, false),
                _ => (None, true),
            };
            let (start, end) = (row.start_address(), row.end_address());
            rows.push(CfiRow { start, end, function: fde.initial_address(), cfa, rbp, has_rbp_expression });
        }
    }
    rows.sort_by_key(|row| row.start);
    rows
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Equal,
    LostFramePointer,
    Different,
    Incomparable,
}

fn compare(frame: Frame, cfi: &CfiRow) -> Verdict {
    let Some((register, offset)) = cfi.cfa else { return Verdict::Incomparable };
    match (frame.cfa, register) {
        (Cfa::StackPointer(computed), RSP) | (Cfa::FramePointer(computed), RBP) => {
            if i64::from(computed) != offset {
                return Verdict::Different;
            }
        }
        _ => return Verdict::Incomparable,
    }
    if cfi.has_rbp_expression {
        return Verdict::Equal;
    }
    match (frame.frame_pointer, cfi.rbp) {
        (SavedFramePointer::Same, None) => Verdict::Equal,
        // Saved, and not yet changed.
        (SavedFramePointer::Same, Some(_)) => Verdict::Equal,
        (SavedFramePointer::AtCfa(computed), Some(offset)) if i64::from(computed) == offset => Verdict::Equal,
        (SavedFramePointer::Unknown, _) => Verdict::LostFramePointer,
        _ => Verdict::Different,
    }
}

/// The CPU time of this thread.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// The most memory that this process has had, MB.
fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

fn agreement(path: &Path, symbols: bool) -> Option<Agreement> {
    let program = ElfProgram::read(path, symbols)?;
    let started = cpu_seconds();
    let memory_before_mb = peak_memory_mb();
    let rows = analyze(&program, &program.hints, program.code_ranges(), &|| true).ok()?;
    let seconds = cpu_seconds() - started;
    let code_bytes = program.code_ranges().iter().map(|range| range.end - range.start).sum();
    let memory_mb = peak_memory_mb() - memory_before_mb;
    let mut agreement =
        Agreement { seconds, memory_mb, rows: rows.len(), code_bytes, ..Agreement::default() };
    let mut address = 0;
    let mut function = 0;
    for cfi in cfi_rows(&program) {
        if program.plt.iter().any(|range| range.contains(&cfi.start)) {
            continue;
        }
        if function != cfi.function {
            function = cfi.function;
            address = cfi.start;
        }
        address = address.max(cfi.start);
        let Some(code) = program.bytes_at(&(address..cfi.end.max(address))) else { continue };
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let row = row_at(&rows, instruction.ip());
            let frame = row.and_then(|row| Some((row.frame?, row.confidence)));
            let is_padding =
                matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::INVALID);
            if cfi.cfa.is_none() || (frame.is_none() && is_padding) {
                continue;
            }
            agreement.count(&program, instruction.ip(), frame, &cfi);
        }
        address = decoder.ip();
    }
    Some(agreement)
}

impl Agreement {
    fn count(
        &mut self,
        program: &ElfProgram,
        address: u64,
        frame: Option<(Frame, Confidence)>,
        cfi: &CfiRow,
    ) {
        self.instructions += 1;
        let Some((frame, confidence)) = frame else {
            self.unknown += 1;
            *self.unknown_in.entry(program.name(cfi.function)).or_default() += 1;
            return;
        };
        let verdict = compare(frame, cfi);
        if confidence == Confidence::ReturnMustFollowCall {
            self.low += 1;
            if verdict == Verdict::Different {
                self.low_different += 1;
                let example = format!("low {} {frame:?} {cfi:x?}", program.name(address));
                let entry = self.examples.entry(format!("low {}", program.name(cfi.function)));
                entry.or_insert((0, example)).0 += 1;
            }
            return;
        }
        match verdict {
            Verdict::Equal => self.equal += 1,
            Verdict::LostFramePointer => self.lost_frame_pointer += 1,
            Verdict::Incomparable => self.incomparable += 1,
            Verdict::Different => {
                self.different += 1;
                let example = format!("{} {frame:?} {cfi:x?}", program.name(address));
                let entry = self.examples.entry(program.name(cfi.function)).or_insert((0, example));
                entry.0 += 1;
            }
        }
    }

    fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.instructions.max(1) as f64
    }

    fn known(&self) -> f64 {
        self.percent(self.instructions - self.unknown)
    }

    fn print(&self, name: &str) {
        println!(
            "{name}: {:.1} MB, {} instructions: full {:.3} % lost rbp {:.3} % low {:.3} % unknown {:.3} % incomparable {:.4} % \
             DIFFERENT {:.5} % ({}), low different {}; {:.2} s/MB, {} rows, {} MB more at the peak",
            self.code_bytes as f64 / 1e6,
            self.instructions,
            self.percent(self.equal),
            self.percent(self.lost_frame_pointer),
            self.percent(self.low),
            self.percent(self.unknown),
            self.percent(self.incomparable),
            self.percent(self.different),
            self.different,
            self.low_different,
            self.seconds / (self.code_bytes as f64 / 1e6),
            self.rows,
            self.memory_mb,
        );
        if std::env::var_os("PROFILER_EXAMPLES").is_some() {
            let mut examples: Vec<_> = self.examples.values().collect();
            examples.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
            for (count, example) in examples.iter().take(15) {
                println!("    {count} {example}");
            }
            let mut unknown: Vec<_> = self.unknown_in.iter().collect();
            unknown.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (name, count) in unknown.iter().take(15) {
                println!("    unknown {count} {name}");
            }
        }
    }
}

#[test]
#[ignore = "reads the files in PROFILER_COMPARE, separated by colons"]
fn rows_agree_with_the_call_frame_information_of_chosen_files() {
    let files = std::env::var_os("PROFILER_COMPARE").unwrap_or_default();
    for path in std::env::split_paths(&files).collect::<Vec<PathBuf>>() {
        if let Some(agreement) = agreement(&path, false) {
            agreement.print(&path.file_name().unwrap_or_default().to_string_lossy());
        }
    }
}
