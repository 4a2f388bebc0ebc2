//! Stops a thread of a running program and executes it one instruction at a time, with ptrace.
#![allow(unsafe_code, reason = "ptrace")]

use std::io;

/// A thread that is stopped. Dropped, it runs on.
#[derive(Debug)]
pub(super) struct StoppedThread(libc::pid_t);

/// The registers from which a stack is unwound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) bp: u64,
}

impl StoppedThread {
    /// Stops the thread with this id.
    pub(super) fn new(tid: u32) -> io::Result<Self> {
        let thread = Self(tid.cast_signed());
        // A seized thread that is not stopped cannot be detached: it runs on when the tracer ends.
        thread.request(libc::PTRACE_SEIZE, 0)?;
        thread.request(libc::PTRACE_INTERRUPT, 0)?;
        thread.wait()?;
        Ok(thread)
    }

    /// Executes one instruction. A signal that arrives meanwhile is delivered.
    pub(super) fn step(&self) -> io::Result<()> {
        let mut signal = 0;
        loop {
            self.request(libc::PTRACE_SINGLESTEP, signal)?;
            match self.wait()? {
                Stop::Step => return Ok(()),
                Stop::Signal(arrived) => signal = arrived.into(),
                Stop::Event => signal = 0,
            }
        }
    }

    pub(super) fn registers(&self) -> io::Result<Registers> {
        // SAFETY: the struct consists of integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: PTRACE_GETREGS writes a `user_regs_struct` to the last argument.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut registers) };
        let libc::user_regs_struct { rip: ip, rsp: sp, rbp: bp, .. } = registers;
        if result == 0 { Ok(Registers { ip, sp, bp }) } else { Err(io::Error::last_os_error()) }
    }

    fn request(&self, request: libc::c_uint, data: libc::c_long) -> io::Result<()> {
        // SAFETY: these requests take no pointers.
        let result = unsafe { libc::ptrace(request, self.0, 0_usize, data) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn wait(&self) -> io::Result<Stop> {
        let mut status = 0;
        // SAFETY: the status is valid for writes.
        let result = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("the thread has ended"));
        }
        // The upper bits are those of an event of ptrace, such as an interruption (ptrace(2)).
        Ok(match (status >> 16, libc::WSTOPSIG(status)) {
            (0, libc::SIGTRAP) => Stop::Step,
            (0, signal) => Stop::Signal(signal),
            _ => Stop::Event,
        })
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.request(libc::PTRACE_DETACH, 0);
    }
}

/// Why a thread has stopped.
enum Stop {
    /// It has executed an instruction.
    Step,
    /// A signal arrived, which has not been delivered.
    Signal(libc::c_int),
    /// It was interrupted.
    Event,
}
