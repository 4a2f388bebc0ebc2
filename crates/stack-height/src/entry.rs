//! Recognizes first instructions of functions.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::knowledge::Knowledge;

/// The instructions that are looked at.
const ENTRY_INSTRUCTIONS: usize = 24;

/// The instructions within which a function that saves registers begins to do so.
const PROLOGUE_INSTRUCTIONS: usize = 6;

/// RBX, RBP and R12 to R15, which functions preserve (System V ABI AMD64, 3.2.1).
const CALLEE_SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Whether the code can be the start of a function: it uses no callee-saved register and no word of the stack before it
/// saves or writes it. Landing pads and labels do.
pub(crate) fn looks_like_entry(knowledge: &mut Knowledge<'_>, start: u64) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let mut address = start;
    let mut has_saved = false;
    let mut written = [false; 16];
    for _ in 0..ENTRY_INSTRUCTIONS {
        let Some(instruction) = knowledge.code.decode(address) else { return address != start };
        address = instruction.next_ip();
        match instruction.mnemonic() {
            Mnemonic::Push if instruction.op0_kind() == OpKind::Register => {
                has_saved = true;
                continue;
            }
            Mnemonic::Nop | Mnemonic::Endbr64 => continue,
            Mnemonic::Pop | Mnemonic::Leave => return has_saved,
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.memory_base() == Register::RSP =>
            {
                has_saved = true;
                continue;
            }
            _ => {}
        }
        let info = factory.info(&instruction);
        let reads_frame = info
            .used_memory()
            .iter()
            .any(|memory| memory.base() == Register::RSP && memory.displacement().cast_signed() >= 0);
        if reads_frame && !has_saved && instruction.flow_control() == FlowControl::Next {
            return false;
        }
        let clears = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        for used in info.used_registers() {
            let register = used.register().full_register();
            if !CALLEE_SAVED.contains(&register) {
                continue;
            }
            let (reads, writes) = access(used.access());
            if reads && !clears && !written[register.number()] {
                return false;
            }
            if writes && !has_saved {
                return false;
            }
            written[register.number()] |= writes;
        }
        has_saved |= allocates_stack(&instruction);
        let continues = matches!(
            instruction.flow_control(),
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::Call
                | FlowControl::IndirectCall
        );
        if !continues {
            break;
        }
    }
    true
}

/// Whether an access reads, and whether it writes.
fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => (false, false),
    }
}

/// Whether the code begins with a push of a register or an allocation of stack memory.
pub(crate) fn has_prologue(knowledge: &mut Knowledge<'_>, start: u64) -> bool {
    let mut address = start;
    for _ in 0..PROLOGUE_INSTRUCTIONS {
        let Some(instruction) = knowledge.code.decode(address) else { return false };
        let pushes_register =
            instruction.mnemonic() == Mnemonic::Push && instruction.op0_kind() == OpKind::Register;
        if pushes_register || allocates_stack(&instruction) {
            return true;
        }
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
        address = instruction.next_ip();
    }
    false
}

/// Whether an instruction allocates stack memory: `sub $n, %rsp` or, as Free Pascal has it, `lea -n(%rsp), %rsp`.
fn allocates_stack(instruction: &Instruction) -> bool {
    if instruction.op0_kind() != OpKind::Register || instruction.op0_register() != Register::RSP {
        return false;
    }
    match instruction.mnemonic() {
        Mnemonic::Sub => true,
        Mnemonic::Lea => {
            instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64().cast_signed() < 0
        }
        _ => false,
    }
}
