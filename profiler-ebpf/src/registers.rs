//! The user registers of the interrupted task, also where the tick hit the kernel. x86-64.

use aya_ebpf::{
    EbpfContext,
    bindings::{bpf_perf_event_data, pt_regs},
    helpers::generated as helpers,
    programs::PerfEventContext,
};
use decide::step::Registers;
use profiler_common::UserRegisters;

use crate::{config::get, kernel};

/// `__USER32_CS` of `arch/x86/include/asm/segment.h`: a task that runs 32-bit code.
const CODE_SEGMENT_32_BIT: u64 = 0x23;
/// The privilege level in a code segment, and that of user mode.
const PRIVILEGE: u64 = 3;

/// The registers with which the task runs, or ran before it entered the kernel. `None` for kernel threads, for
/// 32-bit tasks, and where this kernel does not say.
#[inline(always)]
pub(crate) fn of_user(context: &PerfEventContext) -> Option<Registers> {
    let data = context.as_ptr().cast::<bpf_perf_event_data>();
    // SAFETY: the context of a perf_event program is this structure, and its registers are readable.
    let regs = unsafe { &(*data).regs };
    if regs.cs & PRIVILEGE == PRIVILEGE {
        if regs.cs & 0xffff == CODE_SEGMENT_32_BIT {
            return None;
        }
        return Some(Registers {
            instruction_pointer: regs.rip,
            stack_pointer: regs.rsp,
            frame_pointer: regs.rbp,
        });
    }
    saved(saved_at()?)
}

/// Where the kernel saved the registers when the task entered it.
#[inline(always)]
fn saved_at() -> Option<u64> {
    let source = get!(user_registers);
    if source == UserRegisters::Helper as u32 {
        // SAFETY: the helper has no arguments and cannot fail.
        let task = unsafe { helpers::bpf_get_current_task_btf() };
        // SAFETY: the task is the running one.
        Some(unsafe { helpers::bpf_task_pt_regs(task) } as u64)
    } else if source == UserRegisters::TaskStack as u32 {
        // SAFETY: the helper has no arguments and cannot fail.
        let task = unsafe { helpers::bpf_get_current_task() };
        let stack: u64 = kernel::read(task, get!(task_stack))?;
        Some(stack + u64::from(get!(task_registers)))
    } else {
        None
    }
}

#[inline(always)]
fn saved(address: u64) -> Option<Registers> {
    let cs: u64 = kernel::read(address, core::mem::offset_of!(pt_regs, cs) as u32)?;
    // A kernel thread has none: whatever stands there is of the kernel.
    if cs & PRIVILEGE != PRIVILEGE || cs & 0xffff == CODE_SEGMENT_32_BIT {
        return None;
    }
    Some(Registers {
        instruction_pointer: kernel::read(address, core::mem::offset_of!(pt_regs, rip) as u32)?,
        stack_pointer: kernel::read(address, core::mem::offset_of!(pt_regs, rsp) as u32)?,
        frame_pointer: kernel::read(address, core::mem::offset_of!(pt_regs, rbp) as u32)?,
    })
}
