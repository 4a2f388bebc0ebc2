//! Compares computed rows with the call frame information of libraries on this machine, instruction by instruction.

mod support;

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindSection,
};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use profiler_stack_height::{Cfa, Confidence, Frame, Program, SavedFramePointer, analyze};

use crate::support::{ElfProgram, cpu_seconds, peak_memory_mb, row_at};

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
    /// Whether the function has no other row.
    is_whole_function: bool,
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
    /// Instructions `ret`, and those at which the CFI has its CFA at RSP + 8, as it is there.
    returns: u64,
    right_returns: u64,
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
            let function = fde.initial_address();
            let is_whole_function = fde.initial_address() == start && end - start == fde.len();
            rows.push(CfiRow { start, end, function, cfa, rbp, has_rbp_expression, is_whole_function });
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

/// Whether a function pushes a register. If its CFI has a single row all the same, the CFI is wrong: assembler code.
fn has_push(program: &ElfProgram, cfi: &CfiRow) -> bool {
    let Some(code) = program.bytes_at(&(cfi.start..cfi.end)) else { return false };
    let mut instructions = Decoder::with_ip(64, code, cfi.start, DecoderOptions::NONE).into_iter();
    instructions.any(|instruction| instruction.mnemonic() == Mnemonic::Push)
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
        if cfi.is_whole_function && has_push(&program, &cfi) {
            continue;
        }
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
            if instruction.mnemonic() == Mnemonic::Ret {
                agreement.returns += 1;
                agreement.right_returns += u64::from(cfi.cfa == Some((RSP, 8)));
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

    fn summary(&self, name: &str) -> String {
        let code_mb = self.code_bytes as f64 / 1e6;
        let counts = [
            ("full", self.equal),
            ("without RBP", self.lost_frame_pointer),
            ("low", self.low),
            ("unknown", self.unknown),
            ("incomparable", self.incomparable),
            ("DIFFERENT", self.different),
        ];
        let shares = counts.map(|(what, count)| format!("{what} {:.4} %", self.percent(count))).join(", ");
        format!(
            "{name}: {code_mb:.1} MB, {} instructions: {shares} ({}; low different {}); the CFI is right at {} of {} ret; {:.2} s/MB, {} rows, {} MB more",
            self.instructions,
            self.different,
            self.low_different,
            self.right_returns,
            self.returns,
            self.seconds / code_mb,
            self.rows,
            self.memory_mb,
        )
    }

    /// The functions with the most differences, and with the most unknown instructions.
    fn worst(&self) -> String {
        const SHOWN: usize = 15;
        let mut different: Vec<_> = self.examples.values().collect();
        different.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let mut unknown: Vec<_> = self.unknown_in.iter().collect();
        unknown.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let different =
            different.iter().take(SHOWN).map(|(count, example)| format!("    {count} {example}\n"));
        let unknown = unknown.iter().take(SHOWN).map(|(name, count)| format!("    unknown {count} {name}\n"));
        different.chain(unknown).collect()
    }
}

/// Files or the ELF files below directories.
fn files(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending: Vec<PathBuf> = paths.collect();
    while let Some(path) = pending.pop() {
        if path.is_symlink() && path.is_dir() {
            continue;
        }
        match std::fs::read_dir(&path) {
            Ok(entries) => pending.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => found.push(path),
        }
    }
    found.sort();
    found
}

/// Other files with `PROFILER_COMPARE`: paths separated by colons. With `PROFILER_EXAMPLES`, prints what differs.
#[test]
fn rows_agree_with_the_call_frame_information() {
    const DEFAULT: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6:/usr/lib/x86_64-linux-gnu/libstdc++.so.6";
    let chosen = std::env::var_os("PROFILER_COMPARE").unwrap_or(DEFAULT.into());
    let mut all = (0, 0, 0);
    for path in files(std::env::split_paths(&chosen)) {
        let is_elf = File::open(&path).is_ok_and(|mut file| {
            let mut magic = [0; 4];
            file.read_exact(&mut magic).is_ok() && magic == *b"\x7fELF"
        });
        let Some(agreement) = is_elf.then(|| agreement(&path, false)).flatten() else { continue };
        if agreement.instructions > 0 {
            println!("{}", agreement.summary(&path.to_string_lossy()));
            if std::env::var_os("PROFILER_EXAMPLES").is_some() {
                println!("{}", agreement.worst());
            }
            all.0 += agreement.instructions;
            all.1 += agreement.unknown;
            all.2 += agreement.different;
        }
    }
    let (instructions, unknown, different) = all;
    println!("all: {instructions} instructions, {unknown} unknown, {different} different");
    assert!(instructions > 100_000);
    assert!(unknown * 20 <= instructions, "95 % are known");
    assert!(different * 100_000 <= instructions * 3, "at most 0.003 % contradict the CFI");
}

#[test]
fn the_rows_of_musl_are_nearly_complete() {
    let Some(program) = ElfProgram::read(Path::new("/lib/ld-musl-x86_64.so.1"), false) else {
        println!("not tested: the package musl is missing");
        return;
    };
    let rows = analyze(&program, &program.hints, program.code_ranges(), &|| true).unwrap();
    let mut known = [0_u64; 3];
    for range in program.code_ranges().iter().filter(|range| !program.plt.contains(range)) {
        let code = program.bytes_at(range).unwrap();
        for instruction in Decoder::with_ip(64, code, range.start, DecoderOptions::NONE) {
            if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::INVALID) {
                continue;
            }
            let row = row_at(&rows, instruction.ip()).filter(|row| row.frame.is_some());
            known[row.map_or(0, |row| if row.confidence == Confidence::Full { 2 } else { 1 })] += 1;
        }
    }
    let [unknown, low, full] = known;
    println!("{full} full, {low} low, {unknown} unknown");
    assert!(full * 100 >= (full + low + unknown) * 97);
    assert!((full + low) * 1000 >= (full + low + unknown) * 995);
}
