//! ELF files as input of the analysis, for tests.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod sys;

use std::{collections::HashMap, ops::Range};

use object::{
    LittleEndian as LE, ReadRef,
    elf::{self, FileHeader64},
    read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym},
};
use profiler_stack_height::{Hints, Program, StackRow, never_returns};

/// An ELF file in memory.
pub(crate) struct ElfProgram {
    bytes: Vec<u8>,
    /// Addresses and file offsets of loaded segments.
    segments: Vec<(Range<u64>, u64)>,
    code_ranges: Vec<Range<u64>>,
    /// Places of relative relocations and their targets.
    pointers: HashMap<u64, u64>,
    is_position_independent: bool,
    pub(crate) hints: Hints,
    pub(crate) plt: Vec<Range<u64>>,
    /// Names of functions, for messages.
    pub(crate) names: Vec<(u64, String)>,
    pub(crate) eh_frame: Option<Range<u64>>,
}

type Header = FileHeader64<LE>;

impl ElfProgram {
    /// Reads a file; with `symbols`, those of `.symtab` as well as those of `.dynsym`.
    pub(crate) fn read(path: &std::path::Path, symbols: bool) -> Option<Self> {
        Self::parse(std::fs::read(path).ok()?, symbols)
    }

    pub(crate) fn parse(bytes: Vec<u8>, symbols: bool) -> Option<Self> {
        let data = &*bytes;
        let header = Header::parse(data).ok()?;
        if header.e_machine(LE) != elf::EM_X86_64 {
            return None;
        }
        let sections = header.sections(LE, data).ok()?;
        let mut segments = Vec::new();
        for segment in header.program_headers(LE, data).ok()? {
            if segment.p_type(LE) == elf::PT_LOAD {
                let start = segment.p_vaddr(LE);
                segments.push((start..start + segment.p_filesz(LE), segment.p_offset(LE)));
            }
        }
        let mut code_ranges = Vec::new();
        let mut plt = Vec::new();
        let mut hints = Hints::default();
        let mut eh_frame = None;
        let mut arrays = Vec::new();
        for section in sections.iter() {
            let start = section.sh_addr(LE);
            let range = start..start + section.sh_size(LE);
            let name = sections.section_name(LE, section).unwrap_or_default();
            let flags = section.sh_flags(LE).0;
            if flags & elf::SHF_EXECINSTR.0 != 0
                && section.sh_type(LE) == elf::SHT_PROGBITS
                && !range.is_empty()
            {
                code_ranges.push(range.clone());
                if name.starts_with(b".plt") {
                    plt.push(range.clone());
                }
                if name == b".init" || name == b".fini" {
                    hints.function_starts.push(start);
                }
            }
            if name == b".eh_frame" {
                eh_frame = Some(range.clone());
            }
            if name.ends_with(b"_array") {
                arrays.push(range);
            }
        }
        code_ranges.sort_by_key(|range| range.start);
        let is_position_independent = header.e_type(LE) == elf::ET_DYN;
        let mut program = Self {
            segments,
            code_ranges,
            pointers: HashMap::new(),
            is_position_independent,
            hints,
            plt,
            names: Vec::new(),
            eh_frame,
            bytes: Vec::new(),
        };
        let kinds: &[elf::SectionType] =
            if symbols { &[elf::SHT_DYNSYM, elf::SHT_SYMTAB] } else { &[elf::SHT_DYNSYM] };
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let table = sections.symbols(LE, data, kind).ok()?;
            for symbol in table.iter() {
                let name = table.symbol_name(LE, symbol).unwrap_or_default();
                program.add_symbol(symbol, name, kinds.contains(&kind));
            }
        }
        let dynamic = sections.symbols(LE, data, elf::SHT_DYNSYM).ok()?;
        for section in sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(LE, data) else { continue };
            for relocation in relocations {
                let place = relocation.r_offset(LE);
                let addend = relocation.r_addend(LE).cast_unsigned();
                match relocation.r_type(LE, false) {
                    kind if kind == elf::R_X86_64_RELATIVE => program.add_pointer(place, addend, &arrays),
                    kind if kind == elf::R_X86_64_IRELATIVE => program.hints.function_starts.push(addend),
                    kind if kind == elf::R_X86_64_GLOB_DAT
                        || kind == elf::R_X86_64_JUMP_SLOT
                        || kind == elf::R_X86_64_64 =>
                    {
                        let symbol = relocation.r_sym(LE, false) as usize;
                        let Ok(symbol) = dynamic.symbol(object::SymbolIndex(symbol)) else { continue };
                        if never_returns(dynamic.symbol_name(LE, symbol).unwrap_or_default()) {
                            program.hints.never_return.push(place);
                        }
                        if symbol.st_value(LE) != 0 {
                            program.add_pointer(place, symbol.st_value(LE).wrapping_add(addend), &arrays);
                        }
                    }
                    _ => {}
                }
            }
        }
        program.bytes = bytes;
        program.add_absolute_pointers(&arrays);
        let hints = &mut program.hints;
        hints.entry = Some(Header::parse(&*program.bytes).ok()?.e_entry(LE));
        hints.has_fixed_addresses = !is_position_independent;
        let code = program.code_ranges.clone();
        let in_code = |address: &u64| code.iter().any(|range| range.contains(address));
        hints.function_starts.retain(in_code);
        hints.code_pointers.retain(in_code);
        program.names.sort();
        Some(program)
    }

    fn add_symbol(&mut self, symbol: &impl Sym<Endian = LE>, name: &[u8], is_hint: bool) {
        let is_function = [elf::STT_FUNC, elf::STT_GNU_IFUNC].contains(&symbol.st_type());
        let address = symbol.st_value(LE).into();
        if !is_function || address == 0 {
            return;
        }
        let text = String::from_utf8_lossy(name).into_owned();
        let is_part = text.contains(".cold");
        self.names.push((address, text));
        if is_hint && !is_part {
            self.hints.function_starts.push(address);
            if never_returns(name) && name != b"__libc_start_main" {
                self.hints.never_return.push(address);
            }
        }
    }

    fn add_pointer(&mut self, place: u64, target: u64, arrays: &[Range<u64>]) {
        self.pointers.insert(place, target);
        if arrays.iter().any(|array| array.contains(&place)) {
            self.hints.function_starts.push(target);
        } else {
            self.hints.code_pointers.push(target);
        }
    }

    fn add_absolute_pointers(&mut self, arrays: &[Range<u64>]) {
        if self.is_position_independent {
            return;
        }
        let code = self.code_ranges.clone();
        for (range, _) in self.segments.clone() {
            for place in (range.start.next_multiple_of(8)..range.end.saturating_sub(7)).step_by(8) {
                let is_code = |address| code.iter().any(|range| range.contains(&address));
                if is_code(place) {
                    continue;
                }
                if let Some(target) = self.pointer(place).filter(|target| is_code(*target)) {
                    self.add_pointer(place, target, arrays);
                }
            }
        }
    }

    /// The name of the function at an address.
    pub(crate) fn name(&self, address: u64) -> String {
        let following = self.names.partition_point(|(start, _)| *start <= address);
        match following.checked_sub(1).and_then(|index| self.names.get(index)) {
            Some((start, name)) => format!("{name}+{:#x}", address - start),
            None => format!("{address:#x}"),
        }
    }

    pub(crate) fn bytes_at(&self, range: &Range<u64>) -> Option<&[u8]> {
        let (segment, offset) = self.segments.iter().find(|(segment, _)| segment.contains(&range.start))?;
        if range.end > segment.end {
            return None;
        }
        self.bytes
            .as_slice()
            .read_bytes_at(offset + range.start - segment.start, range.end - range.start)
            .ok()
    }
}

impl Program for ElfProgram {
    fn code_ranges(&self) -> &[Range<u64>] {
        &self.code_ranges
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(bytes) = self.bytes_at(&(address..address.saturating_add(into.len() as u64))) else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }

    fn pointer(&self, address: u64) -> Option<u64> {
        if let Some(target) = self.pointers.get(&address) {
            return Some(*target);
        }
        if self.is_position_independent {
            return None;
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// The row that contains an address.
pub(crate) fn row_at(rows: &[StackRow], address: u64) -> Option<&StackRow> {
    let following = rows.partition_point(|row| row.address <= address);
    rows.get(following.checked_sub(1)?)
}

/// The CPU time of this thread.
pub(crate) fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// The most memory that this process has had, MB.
pub(crate) fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}
