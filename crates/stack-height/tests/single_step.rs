//! Executes a static musl program one instruction at a time and compares each stop with a shadow stack.
//!
//! The shadow stack has the return address and the CFA of each call that was executed. At each stop, the row must give the
//! CFA of the innermost call; in intervals, the rows must lead through all calls to the first.

mod support;

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use iced_x86::{Decoder, DecoderOptions};
use profiler_stack_height::{Cfa, Program, SavedFramePointer, StackRow, analyze};

use crate::support::{ElfProgram, row_at, sys};

/// The stops of the quick test.
const STOPS: u64 = 100_000;

/// The number of stops from one whole chain to the next.
const CHAIN_INTERVAL: u64 = 7;

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct ShadowFrame {
    return_address: u64,
    cfa: u64,
}

#[derive(Debug, Default)]
struct Tally {
    stops: u64,
    known: u64,
    wrong: Vec<String>,
    chains: u64,
    whole_chains: u64,
    wrong_chains: Vec<String>,
}

#[derive(Clone, Copy)]
struct Registers {
    ip: u64,
    sp: u64,
    bp: u64,
}

struct Memory(File);

impl Memory {
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// The frame that calls the one with these registers; `None` where the rows do not know it.
fn caller(
    rows: &[StackRow],
    memory: &Memory,
    registers: Registers,
    looked_up: u64,
) -> Option<(u64, Registers)> {
    let frame = row_at(rows, looked_up)?.frame?;
    let add = |base: u64, offset: i64| base.wrapping_add_signed(offset);
    let cfa = match frame.cfa {
        Cfa::StackPointer(offset) => add(registers.sp, offset.into()),
        Cfa::FramePointer(offset) => add(registers.bp, offset.into()),
        Cfa::StoredAtStackPointer { offset, add: sum } => {
            add(memory.word(add(registers.sp, offset.into()))?, sum.into())
        }
        Cfa::StoredAtFramePointer { offset, add: sum } => {
            add(memory.word(add(registers.bp, offset.into()))?, sum.into())
        }
        Cfa::SignalFrame | Cfa::Root => return None,
    };
    let bp = match frame.frame_pointer {
        SavedFramePointer::Same => registers.bp,
        SavedFramePointer::AtCfa(offset) => memory.word(add(cfa, offset.into()))?,
        SavedFramePointer::AtFramePointer(offset) => memory.word(add(registers.bp, offset.into()))?,
        SavedFramePointer::Unknown => 0xdead_beef,
    };
    Some((cfa, Registers { ip: memory.word(cfa.wrapping_sub(8))?, sp: cfa, bp }))
}

impl Tally {
    fn check_stop(
        &mut self,
        program: &ElfProgram,
        rows: &[StackRow],
        memory: &Memory,
        registers: Registers,
        shadow: &[ShadowFrame],
    ) {
        let Some(innermost) = shadow.last() else { return };
        self.stops += 1;
        if let Some((cfa, _)) = caller(rows, memory, registers, registers.ip) {
            self.known += 1;
            if cfa != innermost.cfa {
                self.wrong.push(program.name(registers.ip));
            }
        }
        if self.stops.is_multiple_of(CHAIN_INTERVAL) {
            self.check_chain(program, rows, memory, registers, shadow);
        }
    }

    fn check_chain(
        &mut self,
        program: &ElfProgram,
        rows: &[StackRow],
        memory: &Memory,
        mut registers: Registers,
        shadow: &[ShadowFrame],
    ) {
        self.chains += 1;
        for (depth, expected) in shadow.iter().rev().enumerate() {
            let looked_up = if depth == 0 { registers.ip } else { registers.ip - 1 };
            let Some((cfa, next)) = caller(rows, memory, registers, looked_up) else { return };
            if cfa != expected.cfa || next.ip != expected.return_address {
                self.wrong_chains.push(program.name(looked_up));
                return;
            }
            registers = next;
        }
        self.whole_chains += 1;
    }
}

/// Follows what the last instruction did to the calls that have not returned.
fn update(shadow: &mut Vec<ShadowFrame>, called_from: Option<u64>, sp: u64) {
    if let Some(return_address) = called_from {
        shadow.push(ShadowFrame { return_address, cfa: sp.wrapping_add(8) });
    }
    // A stack pointer above a return address means that the function was left: by ret or by longjmp.
    while shadow.last().is_some_and(|frame| sp > frame.cfa.wrapping_sub(8)) {
        shadow.pop();
    }
}

/// The address behind the instruction at an address, if it is a call.
fn return_address_of_call(program: &ElfProgram, ip: u64) -> Option<u64> {
    let range = program.code_ranges().iter().find(|range| range.contains(&ip))?;
    let code = program.bytes_at(&(ip..range.end.min(ip + 15)))?;
    let instruction = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
    let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
    is_call.then(|| instruction.next_ip())
}

fn run(path: &Path, max_stops: u64) -> Tally {
    let program = ElfProgram::read(path, false).unwrap();
    let rows = analyze(&program, &program.hints, program.code_ranges(), &|| true).unwrap();
    let mut child = sys::start_traced(Command::new(path).stdout(Stdio::null())).unwrap();
    let memory = Memory(File::open(format!("/proc/{}/mem", child.id())).unwrap());
    let mut shadow = Vec::new();
    let mut tally = Tally::default();
    while tally.stops < max_stops {
        let before = sys::registers(&child).unwrap();
        let registers = Registers { ip: before.rip, sp: before.rsp, bp: before.rbp };
        tally.check_stop(&program, &rows, &memory, registers, &shadow);
        let called_from = return_address_of_call(&program, before.rip);
        if !sys::step(&child).unwrap() {
            break;
        }
        let after = sys::registers(&child).unwrap();
        update(&mut shadow, called_from, after.rsp);
    }
    let _ = child.kill();
    let _ = child.wait();
    tally
}

/// Builds the workload without symbols and without CFI of its own; `None` without a compiler for musl.
fn build() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("steps-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/workloads/steps.c");
    let flags = ["-static", "-O2", "-s", "-fno-asynchronous-unwind-tables"];
    let mut compiler = Command::new("musl-gcc");
    let status = compiler.args(flags).arg("-o").arg(&path).arg(source).status();
    status.ok().filter(|status| status.success()).map(|_| path)
}

/// Another number of stops with `PROFILER_STOPS`.
#[test]
fn rows_of_a_static_musl_program_are_right_at_each_stop() {
    let chosen = std::env::var("PROFILER_STOPS").ok();
    let max_stops = chosen.map_or(STOPS, |stops| stops.parse().unwrap());
    let Some(path) = build() else {
        println!("not tested: musl-gcc of the package musl-tools is missing");
        return;
    };
    let tally = run(&path, max_stops);
    std::fs::remove_file(&path).unwrap();
    println!("{} stops, {} known, {} wrong", tally.stops, tally.known, tally.wrong.len());
    println!("{} chains, {} whole, {} wrong", tally.chains, tally.whole_chains, tally.wrong_chains.len());
    assert!(tally.wrong.is_empty(), "{:?}", &tally.wrong[..10.min(tally.wrong.len())]);
    assert!(tally.wrong_chains.is_empty(), "{:?}", &tally.wrong_chains[..10.min(tally.wrong_chains.len())]);
    assert!(tally.stops >= max_stops.min(STOPS), "{tally:?}");
    assert!(tally.known * 1000 >= tally.stops * 999, "{} of {} are known", tally.known, tally.stops);
    assert!(tally.whole_chains * 100 >= tally.chains * 99, "{} of {}", tally.whole_chains, tally.chains);
}
