//! The user address space of the running task, and whether its user stack is in it.

use aya_ebpf::helpers::generated as helpers;

use super::{
    config::get, kernel_memory::read, user_memory::read_user, user_registers::is_in_execve, vma_search,
};

/// Where the stack is to which the user registers point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserStackState {
    /// In the address space of the task.
    Present,
    /// The task exits, and has given up its address space (`exit_mm`, `kernel/exit.c`). The kernel reads no user memory for
    /// it any more (`nmi_uaccess_okay`, `arch/x86/mm/tlb.c`).
    Exits,
    /// The task executes another program, and its address space is the new one.
    Replaced,
}

/// The state of the stack of the running task, which has entered the kernel.
#[inline(always)]
pub(crate) fn user_stack_state(stack_pointer: u64) -> UserStackState {
    if vma_search::is_possible() && current_mm() == Some(0) {
        return UserStackState::Exits;
    }
    let mut word = 0_u64;
    let destination = (&raw mut word).cast();
    if is_in_execve() && !read_user(destination, size_of::<u64>() as u32, stack_pointer) {
        return UserStackState::Replaced;
    }
    UserStackState::Present
}

/// The `mm_struct` of the running task; 0 where it has none any more.
#[inline(always)]
pub(crate) fn current_mm() -> Option<u64> {
    // SAFETY: the helper has no arguments and cannot fail.
    read(unsafe { helpers::bpf_get_current_task() }, get!(vma_search.task_mm))
}
