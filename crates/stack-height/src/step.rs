//! The effect of one instruction on the abstract state.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::{
    state::{AbstractState, Comparison, FRAME_POINTER, STACK_POINTER},
    value::Value,
};

/// The numbers of the system calls that never return: `rt_sigreturn`, `exit` and `exit_group`
/// (`arch/x86/entry/syscalls/syscall_64.tbl`).
const SYSTEM_CALLS_THAT_NEVER_RETURN: [u64; 3] = [15, 60, 231];

/// The largest mask of an `and` that bounds the index of a jump table.
const MAX_INDEX_MASK: u64 = 4095;

/// Where execution continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// At the next instruction.
    Next,
    /// At the return address.
    Return,
    /// Nowhere: `hlt`, `ud2`, system calls that never return.
    Stop,
    /// At the target.
    Jump(u64),
    /// At the target or the next instruction.
    ConditionalJump(u64),
    /// At the next instruction if the target returns.
    Call(u64),
    /// As for a call, through the pointer in a slot, if that is known.
    IndirectCall(Option<u64>),
    /// At the target of the pointer in a slot of the global offset table.
    JumpThroughSlot(u64),
    /// At one of the targets of a jump table.
    TableJump { table: u64, entries: u32, entry_bytes: u64 },
    /// At an unknown target.
    UnknownJump,
}

/// Applies instructions to states.
pub(crate) struct Interpreter {
    factory: InstructionInfoFactory,
}

impl Interpreter {
    pub(crate) fn new() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }

    /// Applies an instruction to the state before it.
    pub(crate) fn step(&mut self, state: &mut AbstractState, instruction: &Instruction) -> Flow {
        match instruction.mnemonic() {
            Mnemonic::Push => push(state, instruction),
            Mnemonic::Pop => pop(state, instruction),
            Mnemonic::Leave => leave(state),
            Mnemonic::Enter => enter(state, instruction),
            Mnemonic::Mov if is_move(instruction) => move_value(state, instruction),
            Mnemonic::Lea => load_effective_address(state, instruction),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec if has_register(instruction) => {
                add(state, instruction);
            }
            Mnemonic::And if has_register(instruction) => and(state, instruction),
            Mnemonic::Movsxd if has_register(instruction) => move_sign_extended(state, instruction),
            Mnemonic::Movzx if has_register(instruction) => move_zero_extended(state, instruction),
            Mnemonic::Xchg if is_register_exchange(instruction) => exchange(state, instruction),
            Mnemonic::Xor if is_zeroing(instruction) => zero(state, instruction),
            Mnemonic::Cmp => compare(state, instruction),
            Mnemonic::Syscall => return self.system_call(state, instruction),
            Mnemonic::Nop | Mnemonic::Endbr64 => {}
            _ => return self.step_other(state, instruction),
        }
        Flow::Next
    }

    fn step_other(&mut self, state: &mut AbstractState, instruction: &Instruction) -> Flow {
        match instruction.mnemonic() {
            Mnemonic::Ret => Flow::Return,
            Mnemonic::Call => call(state, instruction),
            Mnemonic::Jmp => jump(state, instruction),
            Mnemonic::Hlt
            | Mnemonic::Ud0
            | Mnemonic::Ud1
            | Mnemonic::Ud2
            | Mnemonic::Int3
            | Mnemonic::Retf
            | Mnemonic::Iretq
            | Mnemonic::Sysretq
            | Mnemonic::Sysexitq => Flow::Stop,
            _ if is_conditional_jump(instruction) => Flow::ConditionalJump(instruction.near_branch64()),
            _ => {
                self.forget_written(state, instruction);
                Flow::Next
            }
        }
    }

    /// A system call returns its result in RAX and changes RCX and R11.
    fn system_call(&mut self, state: &mut AbstractState, instruction: &Instruction) -> Flow {
        if let Value::Constant(number) = state.register(0)
            && SYSTEM_CALLS_THAT_NEVER_RETURN.contains(&number)
        {
            return Flow::Stop;
        }
        self.forget_written(state, instruction);
        state.set_register(0, Value::Unknown);
        Flow::Next
    }

    /// Forgets all registers and slots that the instruction writes.
    fn forget_written(&mut self, state: &mut AbstractState, instruction: &Instruction) {
        let stack_pointer = state.stack_pointer();
        let info = self.factory.info(instruction);
        for memory in info.used_memory().iter().filter(|memory| is_write(memory.access())) {
            if memory.index() == Register::None
                && memory.base().is_gpr64()
                && !matches!(memory.segment(), Register::FS | Register::GS)
            {
                let base = state.register(memory.base().number());
                let size = i64::try_from(memory.memory_size().size()).unwrap_or(i64::MAX).max(1);
                state.store(base.plus(memory.displacement().cast_signed()), Value::Unknown, size);
            }
        }
        for used in info.used_registers().iter().filter(|used| is_write(used.access())) {
            if let Some(number) = general(used.register()) {
                state.set_register(number, Value::Unknown);
            }
        }
        // `pushfq` and its like move the stack pointer by a known number of bytes.
        if instruction.is_stack_instruction() {
            let moved = stack_pointer.plus(instruction.stack_pointer_increment().into());
            state.set_register(STACK_POINTER, moved);
        }
        if instruction.rflags_modified() != 0 {
            state.set_comparison(Comparison::Nothing);
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
}

/// The number of the general register that a register is or is a part of.
fn general(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

fn has_register(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Register && general(instruction.op0_register()).is_some()
}

/// A register is written: its number and its size in bytes.
fn destination(instruction: &Instruction) -> Option<(usize, usize)> {
    let register = instruction.op0_register();
    Some((general(register)?, register.size()))
}

/// The second operand, if it is a general register: its number and its size in bytes.
fn source(instruction: &Instruction) -> Option<(usize, usize)> {
    if instruction.op1_kind() != OpKind::Register {
        return None;
    }
    let register = instruction.op1_register();
    Some((general(register)?, register.size()))
}

/// The constant of an operand, sign-extended.
fn immediate(instruction: &Instruction, operand: u32) -> Option<i64> {
    let is_immediate = matches!(
        instruction.op_kind(operand),
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    );
    is_immediate.then(|| instruction.immediate(operand).cast_signed())
}

fn push(state: &mut AbstractState, instruction: &Instruction) {
    let bytes = -i64::from(instruction.stack_pointer_increment());
    let value = match instruction.op0_kind() {
        OpKind::Register => {
            general(instruction.op0_register()).map_or(Value::Unknown, |number| state.register(number))
        }
        OpKind::Memory => state.load(state.address_of(instruction)),
        _ => immediate(instruction, 0).map_or(Value::Unknown, |value| Value::Constant(value.cast_unsigned())),
    };
    state.move_stack_pointer(-bytes);
    state.store(state.stack_pointer(), value, bytes);
}

fn pop(state: &mut AbstractState, instruction: &Instruction) {
    let bytes = i64::from(instruction.stack_pointer_increment());
    let value = if bytes == 8 { state.load(state.stack_pointer()) } else { Value::Unknown };
    state.move_stack_pointer(bytes);
    if instruction.op0_kind() == OpKind::Memory {
        state.store(state.address_of(instruction), value, bytes);
    } else if let Some((number, _)) = destination(instruction) {
        state.set_register(number, value);
    }
}

fn leave(state: &mut AbstractState) {
    state.set_register(STACK_POINTER, state.frame_pointer());
    let saved = state.load(state.stack_pointer());
    state.move_stack_pointer(8);
    state.set_register(FRAME_POINTER, saved);
}

/// `enter` with a nesting level of 0 is `push %rbp; mov %rsp, %rbp; sub $size, %rsp`. Compilers use no other level.
fn enter(state: &mut AbstractState, instruction: &Instruction) {
    let saved = state.frame_pointer();
    state.move_stack_pointer(-8);
    let frame = state.stack_pointer();
    state.store(frame, saved, 8);
    state.set_register(FRAME_POINTER, frame);
    let is_flat = instruction.immediate8_2nd() == 0;
    let top = if is_flat { frame.plus(-i64::from(instruction.immediate16())) } else { Value::Unknown };
    state.set_register(STACK_POINTER, top);
}

/// Whether this is a `mov` of general registers, memory and constants.
fn is_move(instruction: &Instruction) -> bool {
    match instruction.op0_kind() {
        OpKind::Register => general(instruction.op0_register()).is_some(),
        OpKind::Memory => true,
        _ => false,
    }
}

fn move_value(state: &mut AbstractState, instruction: &Instruction) {
    if instruction.op0_kind() == OpKind::Memory {
        return move_to_memory(state, instruction);
    }
    let Some((number, bytes)) = destination(instruction) else { return };
    let value = match instruction.op1_kind() {
        OpKind::Register => moved_register(state, instruction, bytes),
        OpKind::Memory => loaded(state, instruction, bytes),
        _ => match immediate(instruction, 1) {
            Some(value) if bytes == 8 => Value::Constant(value.cast_unsigned()),
            Some(value) if bytes == 4 => Value::Constant(u64::from(value.cast_unsigned() as u32)),
            _ => Value::Unknown,
        },
    };
    state.set_register(number, value);
}

fn moved_register(state: &AbstractState, instruction: &Instruction, bytes: usize) -> Value {
    let Some((from, _)) = source(instruction) else { return Value::Unknown };
    match (state.register(from), bytes) {
        (value, 8) => value,
        (Value::Below(limit), 4) => Value::Below(limit),
        (Value::Constant(value), 4) => Value::Constant(u64::from(value as u32)),
        _ => Value::Unknown,
    }
}

fn loaded(state: &AbstractState, instruction: &Instruction, bytes: usize) -> Value {
    if let Some(limit) = state.limit_in_memory(instruction)
        && bytes >= 4
    {
        return Value::Below(limit);
    }
    if bytes != 8 {
        return Value::Unknown;
    }
    match table_operand(state, instruction, 8) {
        Some((table, entries)) => Value::TablePointer { table, entries },
        None => state.load(state.address_of(instruction)),
    }
}

fn move_to_memory(state: &mut AbstractState, instruction: &Instruction) {
    let address = state.address_of(instruction);
    let bytes = i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX);
    let value = match (instruction.op1_kind(), bytes) {
        (OpKind::Register, 8) => {
            general(instruction.op1_register()).map_or(Value::Unknown, |number| state.register(number))
        }
        _ => Value::Unknown,
    };
    state.store(address, value, bytes);
}

/// The table at a constant address that an operand in memory indexes, and the limit of the index (0 if it has none).
fn table_operand(state: &AbstractState, instruction: &Instruction, entry_bytes: u32) -> Option<(u64, u32)> {
    let index = general(instruction.memory_index())?;
    if instruction.memory_index_scale() != entry_bytes {
        return None;
    }
    let displacement = instruction.memory_displacement64();
    let table = match instruction.memory_base() {
        Register::None => displacement,
        base => match state.register(general(base)?) {
            Value::Constant(base) => base.wrapping_add(displacement),
            _ => return None,
        },
    };
    let entries = if let Value::Below(limit) = state.register(index) { limit } else { 0 };
    Some((table, entries))
}

fn load_effective_address(state: &mut AbstractState, instruction: &Instruction) {
    let Some((number, bytes)) = destination(instruction) else { return };
    let value = if bytes != 8 {
        Value::Unknown
    } else if instruction.memory_index() == Register::None {
        state.address_of(instruction)
    } else {
        sum_of_base_and_index(state, instruction)
    };
    state.set_register(number, value);
}

/// The sum in `lea displacement(base, index), register` if one of the two is a constant.
fn sum_of_base_and_index(state: &AbstractState, instruction: &Instruction) -> Value {
    let (Some(base), Some(index)) = (general(instruction.memory_base()), general(instruction.memory_index()))
    else {
        return Value::Unknown;
    };
    if instruction.memory_index_scale() != 1 {
        return Value::Unknown;
    }
    let displacement = instruction.memory_displacement64().cast_signed();
    match (state.register(base), state.register(index)) {
        (Value::TableOffset { table, entries }, Value::Constant(other))
        | (Value::Constant(other), Value::TableOffset { table, entries })
            if table == other && displacement == 0 =>
        {
            Value::TableTarget { table, entries }
        }
        (Value::Constant(constant), other) | (other, Value::Constant(constant)) => {
            other.plus(constant.cast_signed().wrapping_add(displacement))
        }
        _ => Value::Unknown,
    }
}

/// `add`, `sub`, `inc` and `dec` of a register.
fn add(state: &mut AbstractState, instruction: &Instruction) {
    let Some((number, bytes)) = destination(instruction) else { return };
    let before = state.register(number);
    let is_subtraction = matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Dec);
    let signed = |value: i64| if is_subtraction { value.wrapping_neg() } else { value };
    let value = if instruction.op_count() == 1 {
        before.plus(signed(1))
    } else if let Some(constant) = immediate(instruction, 1) {
        before.plus(signed(constant))
    } else {
        let other = source(instruction).map_or(Value::Unknown, |(from, _)| state.register(from));
        match (before, other) {
            (Value::TableOffset { table, entries }, Value::Constant(base))
            | (Value::Constant(base), Value::TableOffset { table, entries })
                if table == base && !is_subtraction =>
            {
                Value::TableTarget { table, entries }
            }
            (value, Value::Constant(constant)) => value.plus(signed(constant.cast_signed())),
            (Value::Constant(constant), value) if !is_subtraction => value.plus(constant.cast_signed()),
            _ => Value::Unknown,
        }
    };
    state.set_register(number, if bytes == 8 { value } else { Value::Unknown });
    state.set_comparison(Comparison::Nothing);
}

/// `and` aligns the stack pointer, or limits the index of a jump table.
fn and(state: &mut AbstractState, instruction: &Instruction) {
    let Some((number, bytes)) = destination(instruction) else { return };
    let before = state.register(number);
    state.set_register(number, Value::Unknown);
    state.set_comparison(Comparison::Nothing);
    let Some(mask) = immediate(instruction, 1) else { return };
    if mask < 0 && bytes == 8 && before.is_stack_address() {
        state.align(number);
    } else if let Ok(mask) = u64::try_from(mask)
        && mask <= MAX_INDEX_MASK
        && (mask + 1).is_power_of_two()
        && bytes >= 4
    {
        state.set_register(number, Value::Below(mask as u32 + 1));
    }
}

fn move_sign_extended(state: &mut AbstractState, instruction: &Instruction) {
    let Some((number, _)) = destination(instruction) else { return };
    let value = match instruction.op1_kind() {
        OpKind::Memory => table_operand(state, instruction, 4)
            .map_or(Value::Unknown, |(table, entries)| Value::TableOffset { table, entries }),
        _ => limited_source(state, instruction),
    };
    state.set_register(number, value);
}

fn move_zero_extended(state: &mut AbstractState, instruction: &Instruction) {
    let Some((number, _)) = destination(instruction) else { return };
    let value = match instruction.op1_kind() {
        OpKind::Memory => state.limit_in_memory(instruction).map_or(Value::Unknown, Value::Below),
        _ => limited_source(state, instruction),
    };
    // A limit of 256 is the size of the byte, not of a table.
    state.set_register(number, value);
}

/// The limit of the register that is extended.
fn limited_source(state: &AbstractState, instruction: &Instruction) -> Value {
    match source(instruction).map(|(from, _)| state.register(from)) {
        Some(Value::Below(limit)) => Value::Below(limit),
        _ => Value::Unknown,
    }
}

fn is_register_exchange(instruction: &Instruction) -> bool {
    has_register(instruction) && source(instruction).is_some()
}

fn exchange(state: &mut AbstractState, instruction: &Instruction) {
    let (Some((one, bytes)), Some((other, _))) = (destination(instruction), source(instruction)) else {
        return;
    };
    if one == other {
        return;
    }
    let values = (state.register(one), state.register(other));
    let is_whole = bytes == 8;
    state.set_register(one, if is_whole { values.1 } else { Value::Unknown });
    state.set_register(other, if is_whole { values.0 } else { Value::Unknown });
}

fn is_zeroing(instruction: &Instruction) -> bool {
    has_register(instruction)
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register().size() >= 4
}

fn zero(state: &mut AbstractState, instruction: &Instruction) {
    if let Some((number, _)) = destination(instruction) {
        state.set_register(number, Value::Constant(0));
    }
    state.set_comparison(Comparison::Nothing);
}

fn compare(state: &mut AbstractState, instruction: &Instruction) {
    let constant = immediate(instruction, 1).and_then(|value| u64::try_from(value).ok());
    let comparison = match (instruction.op0_kind(), constant) {
        (OpKind::Register, Some(constant)) => general(instruction.op0_register())
            .map_or(Comparison::Nothing, |register| Comparison::Register { register, constant }),
        (OpKind::Memory, Some(constant)) if instruction.memory_index() == Register::None => {
            let displacement = instruction.memory_displacement64().cast_signed();
            general(instruction.memory_base()).map_or(Comparison::Nothing, |base| Comparison::Memory {
                base,
                displacement,
                constant,
            })
        }
        (OpKind::Register, None) => compared_stack_pointer(instruction),
        _ => Comparison::Nothing,
    };
    state.set_comparison(comparison);
}

/// A loop that moves the stack pointer page by page (`-fstack-clash-protection`) ends when it equals a register.
fn compared_stack_pointer(instruction: &Instruction) -> Comparison {
    let other = match (instruction.op0_register(), source(instruction)) {
        (Register::RSP, Some((register, 8))) => Some(register),
        (register, Some((STACK_POINTER, 8))) => general(register),
        _ => None,
    };
    other.map_or(Comparison::Nothing, |register| Comparison::StackPointer { register })
}

fn call(state: &AbstractState, instruction: &Instruction) -> Flow {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Flow::Call(instruction.near_branch64()),
        OpKind::Memory => match state.address_of(instruction) {
            Value::Constant(slot) => Flow::IndirectCall(Some(slot)),
            _ => Flow::IndirectCall(None),
        },
        _ => match general(instruction.op0_register()).map(|number| state.register(number)) {
            Some(Value::Constant(target)) => Flow::Call(target),
            _ => Flow::IndirectCall(None),
        },
    }
}

fn jump(state: &AbstractState, instruction: &Instruction) -> Flow {
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Flow::Jump(instruction.near_branch64()),
        OpKind::Memory => {
            if let Some((table, entries)) = table_operand(state, instruction, 8) {
                return Flow::TableJump { table, entries, entry_bytes: 8 };
            }
            match state.address_of(instruction) {
                Value::Constant(slot) => Flow::JumpThroughSlot(slot),
                _ => Flow::UnknownJump,
            }
        }
        _ => match general(instruction.op0_register()).map(|number| state.register(number)) {
            Some(Value::TableTarget { table, entries }) => Flow::TableJump { table, entries, entry_bytes: 4 },
            Some(Value::TablePointer { table, entries }) => {
                Flow::TableJump { table, entries, entry_bytes: 8 }
            }
            Some(Value::Constant(target)) => Flow::Jump(target),
            _ => Flow::UnknownJump,
        },
    }
}

/// `jcc`, `jrcxz`, `loop`, and `xbegin`, whose target is where an aborted transaction continues.
fn is_conditional_jump(instruction: &Instruction) -> bool {
    instruction.is_jcc_short_or_near()
        || instruction.is_jcx_short()
        || instruction.is_loop()
        || instruction.is_loopcc()
        || (instruction.mnemonic() == Mnemonic::Xbegin && instruction.op0_kind() == OpKind::NearBranch64)
}
