//! Tests the unwind rows of optimized .NET methods at each of their instructions: a thread is executed one instruction at a time,
//! and each stop is unwound by the rows of the table that the BPF program searches.
//!
//! The methods call each other in one known order. Prologues and epilogues are among the instructions.

mod sys;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
};

use profiler_addresses::{FileOffset, RuntimeAddress};
use profiler_common::unwind::{CfaRule, FramePointerRule, Row, Rule};
use profiler_dotnet_runtime::DotNetRuntime;
use profiler_dotnet_symbols::readytorun::AssemblyFiles;
use profiler_tests::{Workload, run_beside_others, wait_until};
use profiler_unwind_tables::{ManagedFunction, TableSource, UnwindTable};

use self::sys::{Registers, StoppedThread};
use crate::{dotnet_memory::open, dotnet_method_memory::dotnet_without_diagnostics};

/// The stops of one program in the quick test. `PROFILER_STOPS` has another number.
const STOPS: usize = 5_000;

/// Instructions that are executed one after the other: several rounds of the workload.
const STEPS: usize = 2_000;

/// The instruction `ret`.
const RETURN: u8 = 0xc3;

/// The methods of the workload (`Frameless.cs`), each with the ones that can call it. A handler has no caller among them.
const CALLERS: [(&str, &[&str]); 8] = [
    ("Work", &["Inner"]),
    ("Inner", &["Middle"]),
    ("Middle", &["Outer"]),
    ("Outer", &["Top", "Handled handler"]),
    ("Top", &["Run"]),
    ("Throw", &["Handled"]),
    ("Handled", &["Run"]),
    ("Handled handler", &[]),
];

/// Opens no assembly: the methods are compiled.
struct NoFiles;

impl AssemblyFiles for NoFiles {
    fn open(&self, _: &std::path::Path) -> Option<profiler_binary_reader::Image> {
        None
    }
}

/// A function of the workload.
#[derive(Debug)]
struct Function {
    end: u64,
    name: String,
    instructions: Vec<u8>,
}

/// The functions that were met, and the unwind table of them.
#[derive(Debug, Default)]
struct JitCode {
    /// By start. Those of other methods have no name.
    functions: BTreeMap<u64, Function>,
    rows: BTreeMap<u64, ManagedFunction>,
    memory: Range<u64>,
    table: UnwindTable,
    pages: Vec<Vec<Row>>,
}

impl JitCode {
    /// The function of the workload at an address, and its start. It is read when it is met first.
    fn find(&mut self, runtime: &mut DotNetRuntime, address: u64) -> Option<(u64, &Function)> {
        if self.at(address).is_none() {
            self.add(runtime, address);
        }
        self.at(address)
    }

    fn at(&self, address: u64) -> Option<(u64, &Function)> {
        let (start, function) = self.functions.range(..=address).next_back()?;
        (address < function.end).then_some((*start, function))
    }

    /// Adds the method at an address, if it is one of the workload.
    fn add(&mut self, runtime: &mut DotNetRuntime, address: u64) {
        let Ok(found) = runtime.find_with_frames(RuntimeAddress(address), &NoFiles) else { return };
        let Some(name) = found.code.name.split_once("Workload.Frameless.").map(|(_, name)| name) else {
            return;
        };
        let name = name.split('(').next().unwrap();
        for (index, function) in found.frames.unwrap().into_iter().enumerate() {
            let name = if index == 0 { name.to_owned() } else { format!("{name} handler") };
            let (start, end) = (function.code.start.0, function.code.end.0);
            let instructions = function.instructions.clone();
            self.functions.insert(start, Function { end, name, instructions });
            let rows = ManagedFunction::compile(function.code, function.unwind_info, function.instructions);
            self.rows.insert(start, rows.unwrap());
        }
        self.compile();
    }

    fn compile(&mut self) {
        const PAGE_BYTES: u64 = 4 << 10;
        let (first, last) = (self.functions.first_key_value(), self.functions.last_key_value());
        let (first, last) = first.zip(last).unwrap();
        self.memory = first.0 / PAGE_BYTES * PAGE_BYTES..last.1.end.next_multiple_of(PAGE_BYTES);
        let memory = RuntimeAddress(self.memory.start)..RuntimeAddress(self.memory.end);
        let source = TableSource::of_managed_functions(&memory, FileOffset(0), self.rows.values());
        self.table = source.compile(&|| true).unwrap();
        self.pages = self.table.pages().collect();
    }

    fn rule(&self, address: u64) -> Rule {
        self.table.find_rule(&self.pages, address - self.memory.start)
    }
}

/// The memory of a stopped program.
struct Memory(File);

impl Memory {
    fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, address).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// The registers of the caller, by the rule for the code at an address of the frame.
    fn caller(&self, rule: Rule, frame: Registers) -> Registers {
        let at = |base: u64, offset: i64| base.wrapping_add_signed(offset);
        let cfa = match rule.cfa {
            kind if kind == CfaRule::StackPointer as u8 => at(frame.sp, rule.cfa_offset.into()),
            kind if kind == CfaRule::FramePointer as u8 => at(frame.bp, rule.cfa_offset.into()),
            _ => panic!("{rule:?} at {frame:x?}"),
        };
        let bp = match rule.frame_pointer {
            kind if kind == FramePointerRule::Same as u8 => frame.bp,
            kind if kind == FramePointerRule::AtCfa as u8 => {
                self.word(at(cfa, rule.frame_pointer_offset.into()))
            }
            _ => panic!("{rule:?} at {frame:x?}"),
        };
        Registers { ip: self.word(at(cfa, rule.return_address_offset.into())), sp: cfa, bp }
    }
}

/// The stops of a program.
#[derive(Debug, Default)]
struct Tally {
    stops: usize,
    wrong: Vec<String>,
    /// The addresses of the stops, and those of them at the first instruction of a function and at `ret`.
    addresses: BTreeSet<u64>,
    at_starts: usize,
    at_returns: usize,
    /// The chains, and how often each was met.
    chains: BTreeMap<String, usize>,
}

impl Tally {
    /// Unwinds a stop. Returns whether it is in a method of the workload.
    fn check(
        &mut self,
        code: &mut JitCode,
        runtime: &mut DotNetRuntime,
        memory: &Memory,
        leaf: Registers,
    ) -> bool {
        let callers =
            |name: &str| CALLERS.iter().find(|(callee, _)| *callee == name).map(|(_, callers)| *callers);
        let Some((start, function)) = code.find(runtime, leaf.ip) else { return false };
        let Some(mut expected) = callers(&function.name) else { return false };
        let mut chain = vec![function.name.clone()];
        self.at_starts += usize::from(start == leaf.ip);
        self.at_returns += usize::from(function.instructions[(leaf.ip - start) as usize] == RETURN);
        self.stops += 1;
        self.addresses.insert(leaf.ip);
        let (mut frame, mut looked_up) = (leaf, leaf.ip);
        while !expected.is_empty() {
            frame = memory.caller(code.rule(looked_up), frame);
            looked_up = frame.ip - 1;
            let name = code.find(runtime, looked_up).map_or("?", |(_, function)| &function.name).to_owned();
            let is_expected = expected.contains(&&*name);
            chain.push(name.clone());
            if !is_expected {
                self.wrong.push(format!("{chain:?} at {leaf:x?}"));
                break;
            }
            expected = callers(&name).unwrap_or_default();
        }
        *self.chains.entry(chain.join(" < ")).or_default() += 1;
        true
    }
}

/// Executes rounds of the workload, with a stop at each instruction.
fn step(workload: &Workload, max_stops: usize) -> Tally {
    let mut runtime = open(workload);
    let memory = Memory(File::open(format!("/proc/{}/mem", workload.pid())).unwrap());
    let (mut code, mut tally) = (JitCode::default(), Tally::default());
    wait_until("the stops", || {
        let thread = StoppedThread::new(workload.pid()).unwrap();
        for _ in 0..STEPS {
            // The runtime handles exceptions in many instructions.
            if !tally.check(&mut code, &mut runtime, &memory, thread.registers().unwrap()) {
                break;
            }
            thread.step().unwrap();
        }
        drop(thread);
        let has_chain = |end: &str| tally.chains.keys().any(|chain| chain.ends_with(end));
        let has_both = has_chain("Top < Run") && has_chain("< Handled handler");
        (tally.stops >= max_stops && has_both).then_some(())
    });
    tally
}

/// The long run is part of `cargo xtask prove`.
#[test]
fn optimized_methods_have_their_callers_at_each_instruction() {
    let Some(_lock) = run_beside_others() else { return };
    let chosen = std::env::var("PROFILER_STOPS").ok();
    let stops = chosen.map_or(STOPS, |stops| stops.parse().unwrap());
    for program in ["9.0", "single-file-10.0"] {
        let mut command = dotnet_without_diagnostics(program, "frameless");
        let workload = Workload::run(command.env("DOTNET_TieredCompilation", "0"));
        let tally = step(&workload, stops);
        let Tally { stops, wrong, addresses, at_starts, at_returns, chains } = &tally;
        println!(
            "{program}: {stops} stops at {} addresses, {at_starts} at the first instruction, {at_returns} at `ret`: {chains:#?}",
            addresses.len()
        );
        assert!(
            wrong.is_empty(),
            "{program}: {} of {stops}: {:?}",
            wrong.len(),
            &wrong[..wrong.len().min(10)]
        );
        assert!(addresses.len() > 300 && *at_starts > 20 && *at_returns > 20, "{program}: {tally:?}");
    }
}
