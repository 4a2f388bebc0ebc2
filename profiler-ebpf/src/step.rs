//! One step of a walk, from a frame to its caller, over plain values: tested on the host.

use profiler_common::unwind::{CfaRule, FramePointerRule, ReturnAddressRule, Rule, WalkEnd};

/// Bytes of a stack slot.
const WORD: u64 = 8;

/// How far above the stack pointer a frame pointer is believed: the usual limit of a stack.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// Where a signal frame (`struct rt_sigframe`, `arch/x86/include/asm/sigframe.h`, the return address popped)
/// holds the registers: `uc_mcontext` of `struct ucontext` (`include/uapi/asm-generic/ucontext.h`).
const SIGNAL_FRAME_RBP: u64 = 120;
const SIGNAL_FRAME_RSP: u64 = 160;

/// What a walk needs of a frame's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction that runs, or to which the callee returns.
    pub instruction_pointer: u64,
    /// As it is there.
    pub stack_pointer: u64,
    /// As it is there.
    pub frame_pointer: u64,
}

/// How a caller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// By the rule of the code.
    ByRule,
    /// By the frame pointer, because there is no rule.
    ByFramePointer,
    /// In a signal frame: interrupted, not called from.
    Interrupted,
}

/// The memory of the task.
pub trait Stack {
    /// Two words at an address, `None` where it cannot be read.
    fn pair(&self, address: u64) -> Option<[u64; 2]>;
    /// One word.
    fn word(&self, address: u64) -> Option<u64>;
}

/// The caller's registers, by the rule of the code that runs.
///
/// # Errors
/// Why there is no caller to be found.
#[inline(always)]
pub fn caller(rule: Rule, at: Registers, stack: &impl Stack) -> Result<(Registers, Found), WalkEnd> {
    let cfa = match canonical_frame_address(rule, at, stack) {
        Ok(cfa) => cfa,
        Err(Special::End(end)) => return Err(end),
        Err(Special::FramePointer) => return by_frame_pointer(at, stack),
        Err(Special::SignalFrame) => return by_signal_frame(at, stack),
    };
    if cfa <= at.stack_pointer {
        return Err(WalkEnd::Backwards);
    }
    if rule.return_address != ReturnAddressRule::AtCfa as u8 {
        return Err(WalkEnd::UnsupportedRule);
    }
    let (frame_pointer, return_address) = saved(rule, cfa, at, stack).ok_or(WalkEnd::UnreadableStack)?;
    if return_address == 0 {
        return Err(WalkEnd::NoCaller);
    }
    let caller = Registers { instruction_pointer: return_address, stack_pointer: cfa, frame_pointer };
    Ok((caller, Found::ByRule))
}

/// What is no frame with an address of its own.
enum Special {
    End(WalkEnd),
    FramePointer,
    SignalFrame,
}

#[inline(always)]
fn canonical_frame_address(rule: Rule, at: Registers, stack: &impl Stack) -> Result<u64, Special> {
    const STACK_POINTER: u8 = CfaRule::StackPointer as u8;
    const FRAME_POINTER: u8 = CfaRule::FramePointer as u8;
    const AT_STACK_POINTER: u8 = CfaRule::StoredAtStackPointer as u8;
    const AT_FRAME_POINTER: u8 = CfaRule::StoredAtFramePointer as u8;
    const LINKAGE_TABLE: u8 = CfaRule::LinkageTable as u8;
    const SIGNAL_FRAME: u8 = CfaRule::SignalFrame as u8;
    const UNKNOWN: u8 = CfaRule::Unknown as u8;
    const ROOT: u8 = CfaRule::Root as u8;
    match rule.cfa {
        STACK_POINTER => Ok(offset(at.stack_pointer, rule.cfa_offset)),
        FRAME_POINTER => Ok(offset(at.frame_pointer, rule.cfa_offset)),
        AT_STACK_POINTER | AT_FRAME_POINTER => {
            let base = if rule.cfa == AT_STACK_POINTER { at.stack_pointer } else { at.frame_pointer };
            let place = offset(base, i32::from(rule.cfa_offset as i16));
            let stored = stack.word(place).ok_or(Special::End(WalkEnd::UnreadableStack))?;
            Ok(offset(stored, rule.cfa_offset >> 16))
        }
        LINKAGE_TABLE => {
            let has_pushed = at.instruction_pointer & 15 >= u64::from(rule.cfa_offset as u8);
            Ok(at.stack_pointer.wrapping_add(if has_pushed { 2 * WORD } else { WORD }))
        }
        SIGNAL_FRAME => Err(Special::SignalFrame),
        UNKNOWN => Err(Special::FramePointer),
        ROOT => Err(Special::End(WalkEnd::Root)),
        _ => Err(Special::End(WalkEnd::UnsupportedRule)),
    }
}

/// The caller's frame pointer and the return address.
#[inline(always)]
fn saved(rule: Rule, cfa: u64, at: Registers, stack: &impl Stack) -> Option<(u64, u64)> {
    let return_address_at = offset(cfa, i32::from(rule.return_address_offset));
    let is_at_cfa = rule.frame_pointer == FramePointerRule::AtCfa as u8;
    let place = offset(if is_at_cfa { cfa } else { at.frame_pointer }, i32::from(rule.frame_pointer_offset));
    if is_at_cfa && place.wrapping_add(WORD) == return_address_at {
        let [frame_pointer, return_address] = stack.pair(place)?;
        return Some((frame_pointer, return_address));
    }
    let return_address = stack.word(return_address_at)?;
    let frame_pointer = if is_at_cfa || rule.frame_pointer == FramePointerRule::AtFramePointer as u8 {
        stack.word(place)?
    } else if rule.frame_pointer == FramePointerRule::Lost as u8 {
        0
    } else {
        at.frame_pointer
    };
    Some((frame_pointer, return_address))
}

#[inline(always)]
fn by_frame_pointer(at: Registers, stack: &impl Stack) -> Result<(Registers, Found), WalkEnd> {
    let frame = at.frame_pointer;
    if frame == 0 {
        // The outermost frame, System V ABI AMD64 3.4.1.
        return Err(WalkEnd::NoCaller);
    }
    let is_plausible = frame >= at.stack_pointer
        && frame.wrapping_sub(at.stack_pointer) <= MAX_FRAME_BYTES
        && frame.is_multiple_of(WORD);
    if !is_plausible {
        return Err(WalkEnd::BrokenFramePointer);
    }
    let Some([frame_pointer, return_address]) = stack.pair(frame) else {
        return Err(WalkEnd::BrokenFramePointer);
    };
    if return_address == 0 {
        return Err(WalkEnd::NoCaller);
    }
    let stack_pointer = frame.wrapping_add(2 * WORD);
    let caller = Registers { instruction_pointer: return_address, stack_pointer, frame_pointer };
    Ok((caller, Found::ByFramePointer))
}

#[inline(always)]
fn by_signal_frame(at: Registers, stack: &impl Stack) -> Result<(Registers, Found), WalkEnd> {
    let frame_pointer = stack.word(at.stack_pointer.wrapping_add(SIGNAL_FRAME_RBP));
    let others = stack.pair(at.stack_pointer.wrapping_add(SIGNAL_FRAME_RSP));
    let (Some(frame_pointer), Some([stack_pointer, instruction_pointer])) = (frame_pointer, others) else {
        return Err(WalkEnd::UnreadableStack);
    };
    let interrupted = Registers { instruction_pointer, stack_pointer, frame_pointer };
    Ok((interrupted, Found::Interrupted))
}

#[inline(always)]
fn offset(address: u64, by: i32) -> u64 {
    address.wrapping_add(i64::from(by) as u64)
}
