//! The user registers of the interrupted task, also where the tick interrupted kernel mode. x86-64.

use core::{mem::offset_of, ptr::read_volatile};

use aya_ebpf::{
    EbpfContext,
    bindings::{bpf_perf_event_data, pt_regs, task_struct},
    helpers::generated as helpers,
    programs::PerfEventContext,
};
use profiler_common::UserRegistersSource;
use profiler_ebpf::unwind_step::{LeafRegisters, Registers};

use super::{config::get, kernel_memory};

/// `__USER32_CS` of `arch/x86/include/asm/segment.h`: the code segment of a task that runs 32-bit code.
const USER32_CS: u64 = 0x23;
/// The privilege level in a code segment selector, which is 3 in user mode.
const PRIVILEGE_LEVEL: u64 = 3;

const WORD_BYTES: usize = size_of::<u64>();

/// Whether the tick interrupted user mode: then the task has no kernel stack.
#[inline(always)]
pub(crate) fn interrupted_user_mode(context: &PerfEventContext) -> bool {
    let data = context.as_ptr().cast::<bpf_perf_event_data>();
    // SAFETY: the context of a perf_event program is this structure, and its registers are readable.
    let cs = unsafe { (*data).regs.cs };
    cs & PRIVILEGE_LEVEL == PRIVILEGE_LEVEL
}

/// The registers that the task has in user mode, or had when it entered the kernel. `None` for kernel threads, for
/// 32-bit tasks, and where this kernel offers no way to read them.
#[inline(always)]
pub(crate) fn user_registers(context: &PerfEventContext, leaf: &mut LeafRegisters) -> Option<Registers> {
    let data = context.as_ptr().cast::<bpf_perf_event_data>();
    // SAFETY: the context of a perf_event program is this structure, and its registers are readable.
    let regs = unsafe { &(*data).regs };
    if regs.cs & PRIVILEGE_LEVEL == PRIVILEGE_LEVEL {
        if regs.cs & 0xffff == USER32_CS {
            return None;
        }
        copy_from_context(regs, leaf);
        return Some(Registers {
            instruction_pointer: regs.rip,
            stack_pointer: regs.rsp,
            // VERIFIER: from the copy. Of a field that is read twice, LLVM computes the address, which the verifier rejects.
            frame_pointer: leaf[offset_of!(pt_regs, rbp) / WORD_BYTES],
            rbx: leaf[offset_of!(pt_regs, rbx) / WORD_BYTES],
        });
    }
    registers_at_kernel_entry(leaf)
}

/// Copies the registers one by one: the verifier allows no other access to the context.
#[inline(always)]
fn copy_from_context(regs: &pt_regs, leaf: &mut LeafRegisters) {
    /// Reads a register so that LLVM does not merge it with others.
    macro_rules! copy {
        ($($field:ident)*) => {$(
            // SAFETY: a readable field of the context.
            leaf[offset_of!(pt_regs, $field) / WORD_BYTES] = unsafe { read_volatile(&raw const regs.$field) };
        )*};
    }
    copy!(r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi);
}

/// The user registers that the running task had when it entered the kernel.
#[inline(always)]
pub(crate) fn registers_at_kernel_entry(leaf: &mut LeafRegisters) -> Option<Registers> {
    read_pt_regs(pt_regs_of_task()?, leaf)
}

/// The user registers of a task that is not on a CPU.
#[inline(always)]
pub(crate) fn registers_of_task(task: *mut task_struct, leaf: &mut LeafRegisters) -> Option<Registers> {
    let source = get!(user_registers_source);
    if source == UserRegistersSource::PtRegsHelper as u32 {
        // SAFETY: the verifier knows that it is a task.
        read_pt_regs(unsafe { helpers::bpf_task_pt_regs(task) } as u64, leaf)
    } else if source == UserRegistersSource::TaskStack as u32 {
        read_pt_regs(pt_regs_on_stack(task as u64)?, leaf)
    } else {
        None
    }
}

/// 1 for the registers of a task that may wait for a mutex of the GNU C library, 0 for others: it is in futex(2) with a command
/// that is used for mutexes, and a value that a mutex can have then (`nptl/pthread_mutex_lock.c`, `nptl/lowlevellock.c` of
/// glibc).
#[inline(always)]
pub(crate) fn may_await_mutex(leaf: &LeafRegisters) -> u32 {
    /// `arch/x86/entry/syscalls/syscall_64.tbl`.
    const FUTEX: u64 = 202;
    /// Commands of futex(2), and the flags beside them: `FUTEX_PRIVATE_FLAG`, `FUTEX_CLOCK_REALTIME` (`linux/futex.h`).
    const FUTEX_WAIT: u32 = 0;
    const FUTEX_LOCK_PI: u32 = 6;
    const FUTEX_LOCK_PI2: u32 = 13;
    const FLAGS: u32 = 128 | 256;
    /// The value of a mutex for which threads wait, or this bit beside the id of the owner.
    const LOCKED_WITH_WAITERS: u32 = 2;
    const FUTEX_WAITERS: u32 = 0x8000_0000;
    let word = |offset: usize| leaf[offset / WORD_BYTES];
    let command = word(offset_of!(pt_regs, rsi)) as u32 & !FLAGS;
    let value = word(offset_of!(pt_regs, rdx)) as u32;
    let has_value = (value == LOCKED_WITH_WAITERS) | (value & FUTEX_WAITERS != 0);
    let waits = (command == FUTEX_WAIT) & has_value;
    let inherits_priority = (command == FUTEX_LOCK_PI) | (command == FUTEX_LOCK_PI2);
    u32::from((word(offset_of!(pt_regs, orig_rax)) == FUTEX) & (waits | inherits_priority))
}

/// Whether the task is in execve(2) or execveat(2), after a tick that interrupted kernel mode.
#[inline(always)]
pub(crate) fn is_in_execve() -> bool {
    /// `arch/x86/entry/syscalls/syscall_64.tbl`.
    const EXECVE: u64 = 59;
    const EXECVEAT: u64 = 322;
    let Some(registers) = pt_regs_of_task() else { return false };
    let system_call = kernel_memory::read(registers, offset_of!(pt_regs, orig_rax) as u32);
    matches!(system_call, Some(EXECVE | EXECVEAT))
}

/// The address of the `pt_regs` that were saved when the task entered the kernel.
#[inline(always)]
fn pt_regs_of_task() -> Option<u64> {
    let source = get!(user_registers_source);
    if source == UserRegistersSource::PtRegsHelper as u32 {
        // SAFETY: the helper has no arguments and cannot fail.
        let task = unsafe { helpers::bpf_get_current_task_btf() };
        // SAFETY: the task is the running one.
        Some(unsafe { helpers::bpf_task_pt_regs(task) } as u64)
    } else if source == UserRegistersSource::TaskStack as u32 {
        // SAFETY: the helper has no arguments and cannot fail.
        let task = unsafe { helpers::bpf_get_current_task() };
        pt_regs_on_stack(task)
    } else {
        None
    }
}

/// The address of the `pt_regs` at the end of a task's kernel stack.
#[inline(always)]
fn pt_regs_on_stack(task: u64) -> Option<u64> {
    let stack: u64 = kernel_memory::read(task, get!(task_stack))?;
    Some(stack + u64::from(get!(stack_pt_regs)))
}

/// Reads a `pt_regs`: the words up to rdi and the one behind, and the frame of the interrupt.
#[inline(always)]
fn read_pt_regs(address: u64, leaf: &mut LeafRegisters) -> Option<Registers> {
    let [instruction_pointer, cs, _flags, stack_pointer]: [u64; 4] =
        kernel_memory::read(address, offset_of!(pt_regs, rip) as u32)?;
    // A kernel thread never entered from user mode: these bytes are not its user registers. A thread that the kernel runs for a
    // process, as those of io_uring, has a copy of its parent's, without a stack (`copy_thread`, `arch/x86/kernel/process.c`).
    if cs & PRIVILEGE_LEVEL != PRIVILEGE_LEVEL || cs & 0xffff == USER32_CS || stack_pointer == 0 {
        return None;
    }
    if !kernel_memory::read_words(leaf, size_of::<LeafRegisters>() as u32, address) {
        return None;
    }
    Some(Registers {
        instruction_pointer,
        stack_pointer,
        frame_pointer: leaf[offset_of!(pt_regs, rbp) / WORD_BYTES],
        rbx: leaf[offset_of!(pt_regs, rbx) / WORD_BYTES],
    })
}
