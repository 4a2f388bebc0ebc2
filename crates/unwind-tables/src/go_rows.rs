//! Rows of Go programs: from the sizes of frames in their function table, which stripping leaves.
//!
//! A frame pointer would skip the callers of functions that have no frame, and the call frame information that a program can have
//! besides does not describe the functions that switch stacks.

use std::{
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Range,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ParseError, WorkBudget};
use profiler_common::unwind::{CfaRule, FramePointerRule, GoLayout, Rule, RuleFlags};
use profiler_elf_symbols::{Elf, GoFrame, GoTable, Machine, Sections};

use crate::{cfi_entries::KEYS, instruction_rows::RETURN_ADDRESS_OFFSET, rule::rule_without_offsets};

const WORD: u32 = 8;

/// The saved frame pointer is below the return address (`cmd/internal/obj/x86/obj6.go`, `preprocess`).
const FRAME_POINTER_OFFSET: i16 = 2 * RETURN_ADDRESS_OFFSET;

/// Where `asmcgocall` keeps the address of the goroutine that calls C (`runtime/asm_amd64.s`).
const ASMCGOCALL_SLOT: i32 = 48;

/// The bytes of the first instruction of a function with a frame: `sub $8, %rsp` or `push %rbp`.
const PROLOGUE_BYTES: u64 = 4;

/// The rows of all functions: those of the largest programs have a few millions.
const MAX_ROWS: usize = 4 << 20;

/// The functions that the runtime makes a goroutine call at any instruction, by a signal (`pushCall` in `runtime/signal_amd64.go`): the
/// address on the stack is that of the interrupted instruction.
const INJECTED_FUNCTIONS: [&str; 4] =
    ["runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"];

/// The return trampoline of signal handlers, up to Go 1.20 and since then (`runtime/sys_linux_amd64.s`).
const SIGNAL_RETURNS: [&str; 2] = ["runtime.sigreturn", "runtime.sigreturn__sigaction"];

/// The function that `morestack` calls on the stack of the thread, also to preempt a goroutine.
const NEW_STACK: &str = "runtime.newstack";

/// What it calls to preempt a goroutine, as far as they are not inlined. They execute other goroutines, and do not return.
const PREEMPTING_FUNCTIONS: [&str; 3] = ["runtime.gopreempt_m", "runtime.goschedImpl", "runtime.preemptPark"];

/// The function that suspends a goroutine to call `newstack`.
const MORE_STACK: &str = "runtime.morestack";

/// What it saves the frame pointer and switches the stack with, where the bits of the register with the address are 0 (Intel SDM, volume 2,
/// MOV): `mov %rbp, offset(register)` and `mov offset(register), %rsp`, with an offset of 8 bits behind them.
const SAVE_FRAME_POINTER: [u8; 3] = [0x48, 0x89, 0x68];
const LOAD_STACK_POINTER: [u8; 3] = [0x48, 0x8b, 0x60];
const REGISTER_BITS: u8 = 7;

/// The most bytes of code that are searched for instructions. `newstack` has 1.5 KiB.
const MAX_SEARCHED_BYTES: u64 = 16 << 10;

/// `call` of a relative address of 32 bits (Intel SDM, volume 2, CALL), and the bytes of the instruction.
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;

/// The functions between two calls of the callback that can cancel the reading.
const FUNCTIONS_BETWEEN_CANCEL_CHECKS: usize = 256;

/// The functions of a Go program.
pub(crate) struct GoRows {
    code: Range<u64>,
    functions: Vec<GoFrame>,
    /// The return addresses of calls that preempt a goroutine, sorted.
    preempting_calls: Vec<u64>,
    /// `None` if it is not as in a known version.
    more_stack: Option<MoreStack>,
}

impl GoRows {
    /// Reads the table of a file; `None` for a program of another language, and for one whose table is too large.
    ///
    /// # Errors
    /// When the table is malformed.
    pub(crate) fn read(elf: &Elf, headers: &Sections) -> Result<Option<Self>, ParseError> {
        if elf.machine() != Machine::X86_64 {
            return Ok(None);
        }
        let Some(table) = GoTable::read(elf, headers, &WorkBudget::default())? else { return Ok(None) };
        let (mut functions, mut rows) = (Vec::new(), 0);
        table.for_each_frame(elf, |frame| {
            rows += frame.sizes.len();
            functions.push(frame);
            if rows > MAX_ROWS { Err(ParseError::TooLarge) } else { Ok(()) }
        })?;
        let preempting_calls = preempting_calls(elf, &functions).unwrap_or_default();
        let more_stack = MoreStack::find(elf, &functions);
        Ok(Some(Self { code: table.code(), functions, preempting_calls, more_stack }))
    }

    /// The addresses of the code of Go.
    pub(crate) fn code(&self) -> Range<u64> {
        self.code.clone()
    }

    /// Calls `each` with the first address of each function, the address behind it, and its rows.
    ///
    /// # Errors
    /// Those of `each`; [`ParseError::TooLarge`] when `should_continue` returns `false`.
    pub(crate) fn for_each_function(
        &self,
        should_continue: &dyn Fn() -> bool,
        mut each: impl FnMut(u64, u64, &[(u64, Rule)]) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        let mut rows = Vec::new();
        for (index, function) in self.functions.iter().enumerate() {
            if index % FUNCTIONS_BETWEEN_CANCEL_CHECKS == 0 && !should_continue() {
                return Err(ParseError::TooLarge);
            }
            rows.clear();
            if function.is_top_frame {
                rows.push((function.code.start, rule_without_offsets(CfaRule::Root)));
            } else if function.writes_stack_pointer {
                let rule = rule_of_switch(function, self.more_stack.map(|code| code.layout));
                match self.more_stack.filter(|code| function.code.contains(&code.switched)) {
                    Some(code) => rows.extend([(function.code.start, by_size(0)), (code.switched, rule)]),
                    None => rows.push((function.code.start, rule)),
                }
            } else if is_one_of(function, &SIGNAL_RETURNS) {
                rows.push((function.code.start, rule_without_offsets(CfaRule::SignalFrame)));
            } else {
                let injected = is_one_of(function, &INJECTED_FUNCTIONS);
                let flags = if injected { RuleFlags::INTERRUPTS_CALLER } else { 0 };
                let rule = |size| Rule { return_address: flags, ..by_size(size) };
                rows.extend(function.sizes.iter().map(|(address, size)| (*address, rule(*size))));
                // A return address is looked up one byte before it.
                let calls = self.preempting_calls.iter().map(|return_address| return_address - 1);
                for call in calls.filter(|call| function.code.contains(call)) {
                    add_root(&mut rows, call);
                }
            }
            each(function.code.start, function.code.end, &rows)?;
        }
        Ok(())
    }
}

impl Hash for GoRows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let functions = self.functions.iter();
        let all: Vec<_> =
            functions.map(|f| (&f.code, f.writes_stack_pointer, &f.name, f.is_top_frame, &f.sizes)).collect();
        KEYS.hash_one((&all, &self.preempting_calls, self.more_stack)).hash(state);
    }
}

fn is_one_of(function: &GoFrame, names: &[&str]) -> bool {
    function.name.as_deref().is_some_and(|name| names.contains(&name))
}

/// The return addresses of the calls in `newstack` that preempt a goroutine; `None` if the file does not have the function.
fn preempting_calls(elf: &Elf, functions: &[GoFrame]) -> Option<Vec<u64>> {
    let (caller, code) = code_of(NEW_STACK, elf, functions)?;
    let callees = functions.iter().filter(|function| is_one_of(function, &PREEMPTING_FUNCTIONS));
    let callees: Vec<_> = callees.map(|function| function.code.start).collect();
    let calls = code.windows(CALL_BYTES).enumerate().filter_map(|(position, bytes)| {
        let &[instruction, a, b, c, d] = bytes else { return None };
        let distance = i32::from_le_bytes([a, b, c, d]);
        let return_address = caller.saturating_add((position + CALL_BYTES) as u64);
        let callee = return_address.wrapping_add_signed(distance.into());
        (instruction == CALL && callees.contains(&callee)).then_some(return_address)
    });
    Some(calls.collect())
}

/// The code of `morestack`.
#[derive(Clone, Copy, Hash)]
struct MoreStack {
    /// Known by where it saves the frame pointer.
    layout: GoLayout,
    /// The first address on the scheduling stack.
    switched: u64,
}

impl MoreStack {
    fn find(elf: &Elf, functions: &[GoFrame]) -> Option<Self> {
        let (start, code) = code_of(MORE_STACK, elf, functions)?;
        let find = |instruction: [u8; 3]| {
            code.windows(instruction.len() + 1).enumerate().find_map(|(position, bytes)| {
                let &[prefix, operation, registers, offset] = bytes else { return None };
                let is_it = [prefix, operation, registers & !REGISTER_BITS] == instruction;
                is_it.then_some((start + (position + bytes.len()) as u64, offset))
            })
        };
        let (_, frame_pointer) = find(SAVE_FRAME_POINTER)?;
        let (switched, stack_pointer) = find(LOAD_STACK_POINTER)?;
        let known = [GoLayout::UNTIL_1_24, GoLayout::SINCE_1_25];
        let layout = known.into_iter().find(|layout| layout.g_frame_pointer == i16::from(frame_pointer))?;
        (u64::from(stack_pointer) == GoLayout::G_STACK_POINTER).then_some(Self { layout, switched })
    }
}

/// The start of the function with this name, and its code.
fn code_of(name: &str, elf: &Elf, functions: &[GoFrame]) -> Option<(u64, Vec<u8>)> {
    let code = &functions.iter().find(|function| function.name.as_deref() == Some(name))?.code;
    let (offset, rest) = elf.layout().rest_from(ElfAddress(code.start))?;
    let bytes = (code.end - code.start).min(rest).min(MAX_SEARCHED_BYTES);
    let bytes = elf.image().read(offset.0, bytes, MAX_SEARCHED_BYTES).ok()?;
    Some((code.start, bytes.to_vec()))
}

/// Makes the last byte of a call a root: there, its return address is looked up. The instruction itself has a caller until it is executed.
fn add_root(rows: &mut Vec<(u64, Rule)>, last_byte: u64) {
    let behind = rows.partition_point(|(address, _)| *address <= last_byte);
    let Some((_, rule)) = behind.checked_sub(1).and_then(|index| rows.get(index)) else { return };
    let (rule, return_address) = (*rule, last_byte + 1);
    rows.insert(behind, (last_byte, rule_without_offsets(CfaRule::Root)));
    if rows.get(behind + 1).is_none_or(|(next, _)| *next > return_address) {
        rows.insert(behind + 1, (return_address, rule));
    }
}

/// The rule of a frame of this size: one that is not empty has the frame pointer of the caller at its upper end.
fn by_size(size: u32) -> Rule {
    let (frame_pointer, frame_pointer_offset) = match size {
        0 => (FramePointerRule::Same, 0),
        _ => (FramePointerRule::AtCfa, FRAME_POINTER_OFFSET),
    };
    Rule {
        cfa: CfaRule::StackPointer as u8,
        cfa_offset: size.saturating_add(WORD).cast_signed(),
        frame_pointer: frame_pointer as u8,
        frame_pointer_offset,
        return_address_offset: RETURN_ADDRESS_OFFSET,
        ..Rule::default()
    }
}

/// The rule of a function that switches stacks (`runtime/asm_amd64.s`). One that begins with a frame, as most do since Go 1.21, has a
/// frame pointer of its own. What `mcall` calls does not return to it, so that the goroutine can continue meanwhile. `morestack` keeps
/// the frame pointer of its caller until Go 1.20, and has that of the scheduling stack or 0 since then.
fn rule_of_switch(function: &GoFrame, layout: Option<GoLayout>) -> Rule {
    let frame_pointer_offset = layout.unwrap_or(GoLayout::UNTIL_1_24).g_frame_pointer;
    let by_goroutine = |cfa: CfaRule, cfa_offset, return_address_offset| Rule {
        cfa: cfa as u8,
        cfa_offset,
        return_address_offset,
        frame_pointer_offset,
        ..Rule::default()
    };
    if function.name.as_deref() == Some("runtime.mcall") {
        // It saves the stack pointer of its caller.
        return by_goroutine(CfaRule::StoredGoroutine, 0, RETURN_ADDRESS_OFFSET);
    }
    let behind_prologue = function.code.start.saturating_add(PROLOGUE_BYTES);
    let has_frame = |(address, size): &(u64, u32)| {
        *size != 0 && (function.code.start..=behind_prologue).contains(address)
    };
    if function.sizes.iter().any(has_frame) {
        return by_frame_pointer();
    }
    match (function.name.as_deref(), layout) {
        // `gosave_systemstack_switch` saves the stack pointer that it is called with.
        (Some("runtime.systemstack"), Some(layout)) => {
            by_goroutine(CfaRule::ExecutedGoroutine, layout.m_goroutine, 0)
        }
        (Some("runtime.asmcgocall"), _) => by_goroutine(CfaRule::StoredGoroutine, ASMCGOCALL_SLOT, 0),
        // As `mcall`.
        (Some(MORE_STACK), Some(layout)) => {
            by_goroutine(CfaRule::SuspendedGoroutine, layout.m_goroutine, RETURN_ADDRESS_OFFSET)
        }
        (Some(MORE_STACK), None) => rule_without_offsets(CfaRule::Unsupported),
        _ => by_frame_pointer(),
    }
}

/// The rule of a function that switches stacks, which keeps the frame pointer of its caller.
fn by_frame_pointer() -> Rule {
    Rule {
        cfa: CfaRule::FramePointerOfAnyStack as u8,
        cfa_offset: 2 * WORD.cast_signed(),
        frame_pointer: FramePointerRule::AtCfa as u8,
        frame_pointer_offset: FRAME_POINTER_OFFSET,
        return_address_offset: RETURN_ADDRESS_OFFSET,
        ..Rule::default()
    }
}

#[cfg(test)]
mod tests;
