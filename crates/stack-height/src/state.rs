//! The abstract state of registers and stack slots at one instruction.

use iced_x86::{ConditionCode, Instruction, Register};

use crate::{
    row::{Cfa, Frame, SavedFramePointer},
    value::Value,
};

/// The number of general registers.
const REGISTERS: usize = 16;

/// The number of stack slots that are tracked: those with the caller's frame pointer, the CFA, and table addresses.
const SLOTS: usize = 8;

/// The size of a slot, bytes.
const SLOT_BYTES: i64 = 8;

/// Registers that a called function may change (System V ABI AMD64, 3.2.1), by number.
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// The numbers of RSP and RBP.
pub(crate) const STACK_POINTER: usize = 4;
pub(crate) const FRAME_POINTER: usize = 5;

/// The frame pointer's offset from the CFA after `push %rbp; mov %rsp, %rbp` (System V ABI AMD64, figure 3.3).
const STANDARD_FRAME_POINTER: i32 = -16;

/// The largest number of entries of a jump table that a comparison states.
const MAX_TABLE_ENTRIES: u64 = 4096;

/// What is known before an instruction is executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AbstractState {
    registers: [Value; REGISTERS],
    slots: [Slot; SLOTS],
    comparison: Comparison,
    /// The operand in memory whose value is below a limit.
    bounded_memory: Option<BoundedMemory>,
    /// Whether the state began in the middle of a function, so that memory has unknown but fixed contents.
    is_scan: bool,
}

/// An aligned word of the stack; free if its place is [`Value::Unknown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    place: Value,
    value: Value,
}

/// What the last instruction compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Comparison {
    #[default]
    Nothing,
    /// A register with a constant.
    Register { register: usize, constant: u64 },
    /// A word in memory with a constant.
    Memory { base: usize, displacement: i64, constant: u64 },
    /// The stack pointer with a register.
    StackPointer { register: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoundedMemory {
    base: usize,
    displacement: i64,
    limit: u32,
}

impl AbstractState {
    /// The state at the first instruction of a function.
    pub(crate) fn at_entry() -> Self {
        Self::with_stack_pointer(Value::Cfa(-8), false)
    }

    /// The state at PLT0, which is entered after one push.
    pub(crate) fn at_first_plt_entry() -> Self {
        Self::with_stack_pointer(Value::Cfa(-16), false)
    }

    /// The state at an instruction in the middle of an unknown function. [`Value::Cfa`] is relative to the stack
    /// pointer there.
    pub(crate) fn at_scan_start() -> Self {
        Self::with_stack_pointer(Value::Cfa(0), true)
    }

    fn with_stack_pointer(stack_pointer: Value, is_scan: bool) -> Self {
        let mut registers = [Value::Unknown; REGISTERS];
        registers[STACK_POINTER] = stack_pointer;
        registers[FRAME_POINTER] = Value::EntryFramePointer(0);
        Self {
            registers,
            slots: [Slot::default(); SLOTS],
            comparison: Comparison::Nothing,
            bounded_memory: None,
            is_scan,
        }
    }

    /// A state that has a frame; `None` for a frame without a fixed distance to the CFA.
    pub(crate) fn of_frame(frame: Frame) -> Option<Self> {
        let mut state = Self::at_entry();
        state.registers[FRAME_POINTER] = match frame.frame_pointer {
            SavedFramePointer::Same => Value::EntryFramePointer(0),
            _ => Value::Unknown,
        };
        match frame.cfa {
            Cfa::StackPointer(offset) => state.registers[STACK_POINTER] = Value::Cfa(-offset),
            Cfa::FramePointer(offset) => {
                state.registers[STACK_POINTER] = Value::Unknown;
                state.registers[FRAME_POINTER] = Value::Cfa(-offset);
            }
            _ => return None,
        }
        if let SavedFramePointer::AtCfa(offset) = frame.frame_pointer {
            state.slots[0] = Slot { place: Value::Cfa(offset.into()), value: Value::EntryFramePointer(0) };
        }
        Some(state)
    }

    pub(crate) fn register(&self, number: usize) -> Value {
        self.registers[number]
    }

    pub(crate) fn stack_pointer(&self) -> Value {
        self.registers[STACK_POINTER]
    }

    pub(crate) fn frame_pointer(&self) -> Value {
        self.registers[FRAME_POINTER]
    }

    pub(crate) fn set_register(&mut self, number: usize, value: Value) {
        self.registers[number] = value;
        if let Comparison::Register { register, .. } | Comparison::StackPointer { register } = self.comparison
            && register == number
        {
            self.comparison = Comparison::Nothing;
        }
        if self.bounded_memory.is_some_and(|memory| memory.base == number) {
            self.bounded_memory = None;
        }
    }

    pub(crate) fn set_comparison(&mut self, comparison: Comparison) {
        self.comparison = comparison;
    }

    pub(crate) fn move_stack_pointer(&mut self, bytes: i64) {
        self.registers[STACK_POINTER] = self.stack_pointer().plus(bytes);
    }

    /// Whether the stack and frame pointers are those of a function's first instruction.
    pub(crate) fn is_at_entry_height(&self) -> bool {
        self.stack_pointer() == Value::Cfa(-8) && self.frame_pointer() == Value::EntryFramePointer(0)
    }

    /// Whether the return address was popped.
    pub(crate) fn is_above_return_address(&self) -> bool {
        matches!(self.stack_pointer(), Value::Cfa(offset) if offset > -8)
    }

    /// The distance from the stack pointer to the CFA, bytes.
    pub(crate) fn height(&self) -> Option<i32> {
        if let Value::Cfa(offset) = self.stack_pointer() { Some(-offset) } else { None }
    }

    /// The address of an operand in memory.
    pub(crate) fn address_of(&self, instruction: &Instruction) -> Value {
        if matches!(instruction.segment_prefix(), Register::FS | Register::GS)
            || instruction.memory_index() != Register::None
        {
            return Value::Unknown;
        }
        match instruction.memory_base() {
            Register::RIP | Register::EIP => Value::Constant(instruction.ip_rel_memory_address()),
            Register::None => Value::Constant(instruction.memory_displacement64()),
            base if base.is_gpr64() => {
                self.registers[base.number()].plus(instruction.memory_displacement64().cast_signed())
            }
            _ => Value::Unknown,
        }
    }

    /// The word at an address.
    pub(crate) fn load(&self, address: Value) -> Value {
        if !address.is_stack_address() {
            return Value::Unknown;
        }
        if let Some(slot) = self.slots.iter().find(|slot| slot.place == address) {
            return slot.value;
        }
        match address {
            Value::Cfa(offset) if self.is_scan && offset >= 0 => Value::WordAtStackPointer(offset),
            Value::EntryFramePointer(offset) if self.is_scan => Value::WordAtFramePointer(offset),
            _ => Value::Unknown,
        }
    }

    /// Stores a value of `bytes` bytes.
    pub(crate) fn store(&mut self, address: Value, value: Value, bytes: i64) {
        self.bounded_memory = None;
        if !address.is_stack_address() {
            return;
        }
        for slot in &mut self.slots {
            if let Some(distance) = slot.place.distance_from(address)
                && distance < bytes
                && -distance < SLOT_BYTES
            {
                *slot = Slot::default();
            }
        }
        let is_tracked = matches!(
            value,
            Value::EntryFramePointer(0)
                | Value::Cfa(_)
                | Value::Constant(_)
                | Value::WordAtStackPointer(_)
                | Value::WordAtFramePointer(_)
        );
        // In a scan, a slot without a value says that the word at the start was overwritten.
        if bytes != SLOT_BYTES || !(is_tracked || self.is_scan) {
            return;
        }
        let free = self.slots.iter().position(|slot| slot.place == Value::Unknown);
        let index = free.or_else(|| {
            let is_constant = |slot: &Slot| matches!(slot.value, Value::Constant(_));
            (value == Value::EntryFramePointer(0) || matches!(value, Value::Cfa(_)))
                .then(|| self.slots.iter().position(is_constant))
                .flatten()
        });
        if let Some(index) = index {
            self.slots[index] = Slot { place: address, value };
        }
    }

    /// Aligns the stack pointer (or a copy of it) in a register: a new base for addresses.
    pub(crate) fn align(&mut self, register: usize) {
        for value in &mut self.registers {
            if matches!(value, Value::Aligned(_)) {
                *value = Value::Unknown;
            }
        }
        for slot in &mut self.slots {
            if matches!(slot.place, Value::Aligned(_)) || matches!(slot.value, Value::Aligned(_)) {
                *slot = Slot::default();
            }
        }
        self.set_register(register, Value::Aligned(0));
    }

    /// What is known after a called function returned.
    pub(crate) fn after_call(&mut self) {
        for number in CALLER_SAVED {
            self.registers[number] = Value::Unknown;
        }
        let stack_pointer = self.stack_pointer();
        for slot in &mut self.slots {
            if slot.place.distance_from(stack_pointer).is_some_and(|distance| distance < 0) {
                *slot = Slot::default();
            }
        }
        self.comparison = Comparison::Nothing;
        self.bounded_memory = None;
    }

    /// The limit of a word in memory that a comparison stated.
    pub(crate) fn limit_in_memory(&self, instruction: &Instruction) -> Option<u32> {
        let memory = self.bounded_memory?;
        let is_same = instruction.memory_index() == Register::None
            && instruction.memory_base().is_gpr64()
            && instruction.memory_base().number() == memory.base
            && instruction.memory_displacement64().cast_signed() == memory.displacement;
        is_same.then_some(memory.limit)
    }

    /// Adds what a conditional jump says about the compared values.
    pub(crate) fn refine(&mut self, jump: &Instruction, is_taken: bool) {
        let condition = jump.condition_code();
        let limit = |constant: u64| {
            let limit = match (condition, is_taken) {
                (ConditionCode::a, false) | (ConditionCode::be, true) => constant.checked_add(1)?,
                (ConditionCode::ae, false) | (ConditionCode::b, true) => constant,
                _ => return None,
            };
            u32::try_from(limit).ok().filter(|limit| (1..MAX_TABLE_ENTRIES).contains(&u64::from(*limit)))
        };
        match self.comparison {
            Comparison::Nothing => {}
            Comparison::Register { register, constant } => {
                if let Some(limit) = limit(constant)
                    && matches!(self.registers[register], Value::Unknown | Value::Below(_))
                {
                    self.registers[register] = Value::Below(limit);
                }
            }
            Comparison::Memory { base, displacement, constant } => {
                if let Some(limit) = limit(constant) {
                    self.bounded_memory = Some(BoundedMemory { base, displacement, limit });
                }
            }
            Comparison::StackPointer { register } => {
                let is_equal =
                    matches!((condition, is_taken), (ConditionCode::e, true) | (ConditionCode::ne, false));
                if is_equal && self.stack_pointer() == Value::Unknown {
                    self.registers[STACK_POINTER] = self.registers[register];
                }
            }
        }
    }

    /// Keeps what both states know. Whether anything was lost.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let mut is_changed = false;
        for (value, other) in self.registers.iter_mut().zip(&other.registers) {
            let joined = join_values(*value, *other);
            is_changed |= joined != *value;
            *value = joined;
        }
        for slot in &mut self.slots {
            if slot.place != Value::Unknown && !other.slots.contains(slot) {
                *slot = Slot::default();
                is_changed = true;
            }
        }
        self.comparison = Comparison::Nothing;
        if self.bounded_memory.is_some() && self.bounded_memory != other.bounded_memory {
            self.bounded_memory = None;
            is_changed = true;
        }
        is_changed
    }

    /// Whether the state determines the CFA.
    pub(crate) fn has_frame(&self) -> bool {
        self.cfa().is_some()
    }

    /// The frame, if the state determines the CFA.
    pub(crate) fn frame(&self) -> Option<Frame> {
        let cfa = self.cfa()?;
        let frame_pointer = self.saved_frame_pointer();
        Some(Frame { cfa, frame_pointer })
    }

    fn cfa(&self) -> Option<Cfa> {
        match (self.frame_pointer(), self.stack_pointer()) {
            // The frame pointer changes more rarely: fewer rows.
            (Value::Cfa(STANDARD_FRAME_POINTER), _) => {
                return Some(Cfa::FramePointer(-STANDARD_FRAME_POINTER));
            }
            (_, Value::Cfa(offset)) => return (offset <= -8).then_some(Cfa::StackPointer(-offset)),
            (Value::Cfa(offset), _) => return Some(Cfa::FramePointer(-offset)),
            _ => {}
        }
        self.slots.iter().find_map(|slot| {
            let (Value::Aligned(_), Value::Cfa(stored)) = (slot.place, slot.value) else { return None };
            let add = i16::try_from(-stored).ok()?;
            let offset_from = |base: Value| i16::try_from(slot.place.distance_from(base)?).ok();
            if let Some(offset) = offset_from(self.frame_pointer()) {
                return Some(Cfa::StoredAtFramePointer { offset, add });
            }
            let offset = offset_from(self.stack_pointer()).filter(|offset| *offset >= 0)?;
            Some(Cfa::StoredAtStackPointer { offset, add })
        })
    }

    /// Where the caller's frame pointer is. Of several copies, the highest one is used: lower ones can be of registers that were
    /// popped again, below the stack pointer, where a signal handler can overwrite them.
    fn saved_frame_pointer(&self) -> SavedFramePointer {
        if self.frame_pointer() == Value::EntryFramePointer(0) {
            return SavedFramePointer::Same;
        }
        let copies = || self.slots.iter().filter(|slot| slot.value == Value::EntryFramePointer(0));
        let at_cfa = copies().filter_map(|slot| match slot.place {
            Value::Cfa(offset) => i16::try_from(offset).ok(),
            _ => None,
        });
        let at_frame_pointer = copies().filter_map(|slot| {
            let distance = slot.place.distance_from(self.frame_pointer())?;
            i16::try_from(distance).ok()
        });
        let at_cfa = at_cfa.max().map(SavedFramePointer::AtCfa);
        let at_frame_pointer = at_frame_pointer.max().map(SavedFramePointer::AtFramePointer);
        at_cfa.or(at_frame_pointer).unwrap_or(SavedFramePointer::Unknown)
    }
}

fn join_values(one: Value, other: Value) -> Value {
    match (one, other) {
        _ if one == other => one,
        (Value::Below(one), Value::Below(other)) if other < one => Value::Below(one),
        _ => Value::Unknown,
    }
}
