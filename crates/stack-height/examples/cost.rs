//! Measures the analysis of ELF files: CPU time for each MB of code, memory, and a digest of the rows, to compare two versions.
//!
//! `cargo run --release -p profiler-stack-height --example cost -- FILE...`

#![allow(clippy::print_stdout, reason = "the output of a program")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use profiler_stack_height::{Program, analyze_in_parts};

use crate::support::{ElfProgram, cpu_seconds, peak_memory_mb};

fn main() {
    for path in std::env::args().skip(1) {
        let Some(program) = ElfProgram::read(Path::new(&path), false) else {
            println!("{path}: not an ELF file for x86-64");
            continue;
        };
        let code_bytes: u64 = program.code_ranges().iter().map(|range| range.end - range.start).sum();
        let code_mb = code_bytes as f64 / 1e6;
        let (started, memory_before_mb) = (cpu_seconds(), peak_memory_mb());
        let mut digest = DefaultHasher::new();
        let mut rows = 0;
        let result =
            analyze_in_parts(&program, &program.hints, program.code_ranges(), &|| true, &mut |part| {
                for row in part {
                    (row.address, row.frame, row.confidence).hash(&mut digest);
                }
                rows += part.len();
                Ok(())
            });
        let seconds = cpu_seconds() - started;
        let memory_mb = peak_memory_mb() - memory_before_mb;
        let cost = format!("{code_mb:.2} MB, {:.3} s/MB, {memory_mb} MB more", seconds / code_mb);
        match result {
            Ok(()) => println!("{path}: {cost}, {rows} rows, digest {:016x}", digest.finish()),
            Err(error) => println!("{path}: {cost}, {error}"),
        }
    }
}
