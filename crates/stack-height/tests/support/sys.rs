//! Executes a program one instruction at a time, with ptrace.
#![allow(unsafe_code, reason = "ptrace")]

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command},
};

/// Starts a program that stops before its first instruction.
pub(crate) fn start_traced(command: &mut Command) -> io::Result<Child> {
    let trace_me = || {
        // SAFETY: PTRACE_TRACEME takes no pointers, and ptrace is a plain system call, as the child after fork demands.
        let result = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(trace_me) };
    let child = command.spawn()?;
    wait(&child)?;
    Ok(child)
}

/// Executes one instruction; `false` when the program has ended.
pub(crate) fn step(child: &Child) -> io::Result<bool> {
    // SAFETY: PTRACE_SINGLESTEP takes no pointers.
    let result = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, process_id(child), 0, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    wait(child)
}

/// The registers of a stopped program.
pub(crate) fn registers(child: &Child) -> io::Result<libc::user_regs_struct> {
    // SAFETY: the struct consists of integers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: PTRACE_GETREGS writes a `user_regs_struct` to the last argument.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, process_id(child), 0, &raw mut registers) };
    if result == 0 { Ok(registers) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the program stops; `false` when it has ended.
fn wait(child: &Child) -> io::Result<bool> {
    let mut status = 0;
    // SAFETY: the status is valid for writes.
    let result = unsafe { libc::waitpid(process_id(child), &raw mut status, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(libc::WIFSTOPPED(status)) }
}

fn process_id(child: &Child) -> libc::pid_t {
    child.id().cast_signed()
}
