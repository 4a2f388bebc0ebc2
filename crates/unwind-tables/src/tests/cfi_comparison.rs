//! Differential test: unwind tables against gimli's evaluation of the CFI, row by row, over ELF files of this machine.
//!
//! Both unwind one frame from the same synthetic registers and memory, and must have the same result.
//! `PROFILER_COMPARE=DIRECTORY` compares every file below a directory instead of a sample.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EvaluationResult, LittleEndian, Location, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};
use profiler_binary_reader::Image;
use profiler_common::unwind::{CfaRule, FramePointerRule, LeafRegister, RbxRule, Rule, RuleFlags};
use profiler_elf_symbols::Elf;

use crate::{architecture::Architecture, elf_source::ElfSource, rule::CfiReader, table::UnwindTable};

/// The directories of the sample.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/lib", "/usr/libexec", "/usr/sbin"];

/// The sample has every n-th file.
const SAMPLE_INTERVAL: usize = 16;

/// The sample has no larger files.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The result of unwinding one frame.
#[derive(Debug, PartialEq, Eq)]
enum Caller {
    Root,
    AboveSignalFrame,
    Frame { stack_pointer: u64, frame_pointer: Option<u64>, rbx: Option<u64>, return_address: u64 },
    Unknown,
    Unsupported,
}

#[derive(Debug, Default)]
struct Tally {
    files: usize,
    functions: usize,
    compared: usize,
    table_rows: usize,
    unsupported: usize,
    /// Their number by CFA and return address.
    unsupported_rows: BTreeMap<String, usize>,
    /// Callers whose frame pointer is undefined by the table but not by gimli.
    lost_frame_pointers: usize,
    /// Callers whose rbx is undefined by the table but not by gimli: all where no CFA is at rbx.
    lost_rbx: usize,
    /// Addresses that the FDEs of several functions cover.
    overlapping: usize,
    different: Vec<String>,
}

#[test]
fn unwind_tables_agree_with_the_call_frame_information() {
    let mut files = vec![std::env::current_exe().unwrap()];
    if let Some(directory) = std::env::var_os("PROFILER_COMPARE") {
        files.extend(elf_files(Path::new(&directory)));
    } else {
        let sample = DIRECTORIES.iter().flat_map(|directory| elf_files(Path::new(directory)));
        let small = sample.filter(|path| fs::metadata(path).is_ok_and(|file| file.len() < MAX_FILE_BYTES));
        files.extend(small.step_by(SAMPLE_INTERVAL));
    }
    let mut tally = Tally::default();
    for path in &files {
        compare_file(path, &mut tally);
    }
    println!("{tally:?}");
    assert!(
        tally.different.is_empty(),
        "{} different: {:#?}",
        tally.different.len(),
        &tally.different[..10.min(tally.different.len())]
    );
    assert!(tally.compared > 10_000);
    assert!(tally.unsupported < tally.compared / 100);
    assert!(tally.lost_frame_pointers < tally.compared / 1000);
    assert!(tally.lost_rbx < tally.compared, "the dynamic loader is among the files");
}

/// The ELF files below a directory, sorted.
fn elf_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.retain(|path| open(path).is_some());
    found.sort();
    found
}

fn open(path: &Path) -> Option<Elf> {
    Elf::parse(Image::from_file(File::open(path).ok()?).ok()?).ok()
}

fn compare_file(path: &Path, tally: &mut Tally) {
    let Some(elf) = open(path) else { return };
    let Ok(Some(call_frames)) = elf.eh_frame(&elf.sections().unwrap_or_default(), u64::MAX) else { return };
    let table = match ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)) {
        Ok(table) => table,
        Err(defect) => return tally.different.push(format!("{}: {defect:?}", path.display())),
    };
    tally.files += 1;
    tally.table_rows += table.row_count();
    let bases = BaseAddresses::default().set_eh_frame(call_frames.address.0);
    let bytes = call_frames.read().unwrap();
    compare(path, &elf, &table, &EhFrame::new(&bytes, LittleEndian), &bases, tally);
}

fn compare<'a, S: UnwindSection<CfiReader<'a>>>(
    path: &Path,
    elf: &Elf,
    table: &UnwindTable,
    section: &S,
    bases: &BaseAddresses,
    tally: &mut Tally,
) {
    let architecture = Architecture::for_machine(elf.machine());
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(fde) = entry else { continue };
        let Ok(fde) = fde.parse(S::cie_from_offset) else { continue };
        if fde.len() > 0 && elf.code_ranges().any(|code| code.contains(&fde.initial_address())) {
            functions.push(fde);
        }
    }
    tally.functions += functions.len();
    let pages: Vec<_> = table.pages().collect();
    let mut context = UnwindContext::new();
    for fde in &functions {
        let Ok(mut rows) = fde.rows(section, bases, &mut context) else { continue };
        while let Ok(Some(row)) = rows.next_row() {
            let end = row.end_address().min(fde.end_address());
            if row.start_address() >= end {
                continue;
            }
            for ip in [row.start_address(), end - 1] {
                tally.compared += 1;
                let step = UnwindStep { architecture, ip };
                let found = step.apply_rule(table.find_rule(&pages, ip));
                let encoding = fde.cie().encoding();
                let expected = if fde.is_signal_trampoline() && step.has_signal_frame(section, row, encoding)
                {
                    Caller::AboveSignalFrame
                } else {
                    step.apply_row(section, row, encoding, fde.cie().return_address_register())
                };
                let expected = match (&found, expected) {
                    (
                        Caller::Frame { rbx: None, .. },
                        Caller::Frame { stack_pointer, frame_pointer, rbx: Some(_), return_address },
                    ) => {
                        tally.lost_rbx += 1;
                        Caller::Frame { stack_pointer, frame_pointer, rbx: None, return_address }
                    }
                    (_, expected) => expected,
                };
                match (&found, &expected) {
                    _ if found == expected => {}
                    (Caller::Unsupported, _) => {
                        tally.unsupported += 1;
                        *tally.unsupported_rows.entry(step.describe(section, row, encoding)).or_default() +=
                            1;
                    }
                    (
                        Caller::Frame { stack_pointer, frame_pointer: None, return_address, .. },
                        Caller::Frame {
                            stack_pointer: expected_pointer,
                            return_address: expected_address,
                            ..
                        },
                    ) if (stack_pointer, return_address) == (expected_pointer, expected_address) => {
                        tally.lost_frame_pointers += 1;
                    }
                    _ if functions.iter().filter(|other| other.contains(ip)).count() > 1 => {
                        tally.overlapping += 1;
                    }
                    _ => {
                        let path = path.display();
                        tally.different.push(format!("{path} {ip:#x}: {found:?}, expected {expected:?}"));
                    }
                }
            }
        }
    }
}

/// Unwinds one frame from synthetic registers and memory.
struct UnwindStep {
    architecture: &'static Architecture,
    ip: u64,
}

impl UnwindStep {
    fn register(&self, register: Register) -> u64 {
        match register {
            gimli::X86_64::RA => self.ip,
            Register(number) => 0x7fff_0000_0000 + 0x10_0000 * u64::from(number),
        }
    }

    /// The value at an address of memory. Every address has a distinct value.
    fn memory(address: u64) -> u64 {
        address.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }

    /// Applies a rule as the BPF program does.
    fn apply_rule(&self, rule: Rule) -> Caller {
        let stack_pointer = self.register(self.architecture.stack_pointer);
        let frame_pointer = self.register(self.architecture.frame_pointer);
        let at = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
        let [a, b, c, d] = rule.cfa_offset.to_le_bytes();
        let (low, high) = (i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d]));
        let stored = |base| at(Self::memory(at(base, low.into())), high.into());
        let cfa = match rule.cfa {
            kind if kind == CfaRule::StackPointer as u8 => at(stack_pointer, rule.cfa_offset),
            kind if kind == CfaRule::FramePointer as u8 => at(frame_pointer, rule.cfa_offset),
            kind if kind == CfaRule::Rbx as u8 => at(self.register(gimli::X86_64::RBX), rule.cfa_offset),
            kind if kind & LeafRegister::FLAG != 0 => at(self.leaf_register(kind), rule.cfa_offset),
            kind if kind == CfaRule::StoredAtStackPointer as u8 => stored(stack_pointer),
            kind if kind == CfaRule::StoredAtFramePointer as u8 => stored(frame_pointer),
            kind if kind == CfaRule::Plt as u8 => {
                let pushed = self.ip % 16 >= u64::try_from(rule.cfa_offset).unwrap();
                stack_pointer + if pushed { 16 } else { 8 }
            }
            kind if kind == CfaRule::SignalFrame as u8 => return Caller::AboveSignalFrame,
            kind if kind == CfaRule::Root as u8 => return Caller::Root,
            kind if kind == CfaRule::Unsupported as u8 => return Caller::Unsupported,
            _ => return Caller::Unknown,
        };
        let frame_pointer = match rule.frame_pointer {
            kind if kind == FramePointerRule::Same as u8 => Some(frame_pointer),
            kind if kind == FramePointerRule::AtCfa as u8 => {
                Some(Self::memory(at(cfa, rule.frame_pointer_offset.into())))
            }
            kind if kind == FramePointerRule::AtFramePointer as u8 => {
                Some(Self::memory(at(frame_pointer, rule.frame_pointer_offset.into())))
            }
            kind if kind & LeafRegister::FLAG != 0 => Some(self.leaf_register(kind)),
            _ => None,
        };
        let rbx = match rule.rbx {
            RbxRule::UNDEFINED => None,
            RbxRule::SAME => Some(self.register(gimli::X86_64::RBX)),
            slot => Some(Self::memory(at(cfa, -8 * i32::from(slot - RbxRule::SAME)))),
        };
        let return_address = if rule.return_address & LeafRegister::FLAG == 0 {
            Self::memory(at(cfa, rule.return_address_offset.into()))
        } else {
            self.leaf_register(rule.return_address)
        };
        Caller::Frame { stack_pointer: cfa, frame_pointer, rbx, return_address }
    }

    fn leaf_register(&self, rule: u8) -> u64 {
        let mut registers = (0..=16).map(Register);
        let leaf_register = self.architecture.leaf_register;
        let kind = rule & !RuleFlags::ALL;
        self.register(registers.find(|register| leaf_register(*register) == Some(kind)).unwrap())
    }

    /// Whether the CFA is the stack pointer that the kernel's signal frame holds.
    fn has_signal_frame<'a, S: UnwindSection<CfiReader<'a>>>(
        &self,
        section: &S,
        row: &UnwindTableRow<usize>,
        encoding: gimli::Encoding,
    ) -> bool {
        let expected = Self::memory(self.register(self.architecture.stack_pointer) + 160);
        matches!(row.cfa(), gimli::CfaRule::Expression(expression)
            if self.evaluate(expression.get(section).unwrap().evaluation(encoding), None) == expected)
    }

    /// The CFA and the rule of the return address, for people.
    fn describe<'a, S: UnwindSection<CfiReader<'a>>>(
        &self,
        section: &S,
        row: &UnwindTableRow<usize>,
        encoding: gimli::Encoding,
    ) -> String {
        let return_address = row.register(gimli::X86_64::RA);
        let gimli::CfaRule::Expression(expression) = row.cfa() else {
            return format!("{:?}, return address {return_address:?}", row.cfa());
        };
        let mut operations = expression.get(section).unwrap().operations(encoding);
        let mut described = Vec::new();
        while let Ok(Some(operation)) = operations.next() {
            described.push(format!("{operation:?}"));
        }
        format!("{}, return address {return_address:?}", described.join(" "))
    }

    /// Applies a CFI row.
    fn apply_row<'a, S: UnwindSection<CfiReader<'a>>>(
        &self,
        section: &S,
        row: &UnwindTableRow<usize>,
        encoding: gimli::Encoding,
        return_address: Register,
    ) -> Caller {
        let evaluate = |expression: &UnwindExpression<usize>, cfa| {
            self.evaluate(expression.get(section).unwrap().evaluation(encoding), cfa)
        };
        let cfa = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register).wrapping_add_signed(*offset)
            }
            gimli::CfaRule::Expression(expression) => evaluate(expression, None),
        };
        let value = |register| {
            Some(match row.register(register).unwrap_or(RegisterRule::SameValue) {
                RegisterRule::SameValue => self.register(register),
                RegisterRule::Offset(offset) => Self::memory(cfa.wrapping_add_signed(offset)),
                RegisterRule::ValOffset(offset) => cfa.wrapping_add_signed(offset),
                RegisterRule::Register(other) => self.register(other),
                RegisterRule::Expression(expression) => Self::memory(evaluate(&expression, Some(cfa))),
                RegisterRule::ValExpression(expression) => evaluate(&expression, Some(cfa)),
                _ => return None,
            })
        };
        match value(return_address) {
            Some(return_address) => {
                let own_rule = row.register(self.architecture.stack_pointer);
                let stack_pointer =
                    own_rule.and_then(|_| value(self.architecture.stack_pointer)).unwrap_or(cfa);
                let frame_pointer = value(self.architecture.frame_pointer);
                let rbx = value(gimli::X86_64::RBX);
                Caller::Frame { stack_pointer, frame_pointer, rbx, return_address }
            }
            None => Caller::Root,
        }
    }

    fn evaluate(&self, mut evaluation: gimli::Evaluation<CfiReader<'_>>, cfa: Option<u64>) -> u64 {
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)))
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(Self::memory(address)))
                }
                other => panic!("{other:?}"),
            }
            .unwrap();
        }
        match evaluation.result()[..] {
            [gimli::Piece { location: Location::Address { address }, .. }] => address,
            ref other => panic!("{other:?}"),
        }
    }
}
