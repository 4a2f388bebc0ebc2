//! Finds the fields of tracepoints in the kernel's types, those of probes and system calls in the registers, and those of static
//! probes at their operands.

use std::mem::offset_of;

use libc::user_regs_struct;
use profiler_common::event::{Comparison, Condition, Field, FieldPlace, MAX_CONDITIONS, SystemCallPlace};
use profiler_elf_symbols::{Operand, ProbeArgument, Register};

use super::{
    btf::{Btf, Variable},
    kernel_types::KernelTypes,
};
use crate::{
    counted_event::{CountedEvent, DURATION, EventSource},
    error::{Error, ErrorKind, Result},
    system_calls::SystemCall,
};

/// The code segment of 64-bit programs, `__USER_CS` (`arch/x86/include/asm/segment.h`). That of 32-bit programs is 0x23; their
/// system calls have other numbers.
const USER_CODE_SEGMENT: i64 = 0x33;

/// The fields of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventFields {
    pub(super) weight: Field,
    pub(super) conditions: [Condition; MAX_CONDITIONS],
    pub(super) thread: ThreadOffsets,
}

/// Offsets in a task of what system calls need; 0 where they are not needed, or not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadOffsets {
    /// `thread_info.status`, which distinguishes the system calls of 32-bit code.
    pub(super) status: u32,
    /// `start_time`.
    pub(super) start_time: u32,
}

impl EventFields {
    /// Finds the fields that the weight and the condition of an event name, and those that distinguish a system call.
    /// `operands`: those of a place of a static probe.
    pub(super) fn of(event: &CountedEvent, operands: &str, types: &KernelTypes) -> Result<Self> {
        let find = |name: &str| field(event, operands, types, name);
        let weight = event.weight().map_or(Ok(Field::default()), find)?;
        let [number, segment] = match event.source() {
            EventSource::SystemCall(call) => system_call_conditions(*call),
            _ => [Condition::default(); 2],
        };
        let requested = match event.condition() {
            Some(requested) => condition(find(&requested.field)?, requested.comparison, requested.number),
            None => Condition::default(),
        };
        let needs_thread = event.system_call_place() != SystemCallPlace::None || event.needs_duration();
        let thread = if needs_thread {
            ThreadOffsets::find(types).unwrap_or_default()
        } else {
            ThreadOffsets::default()
        };
        Ok(Self { weight, conditions: [number, segment, requested], thread })
    }
}

fn condition(field: Field, comparison: Comparison, number: i64) -> Condition {
    Condition { number, field, comparison: comparison as u32, reserved: 0 }
}

impl ThreadOffsets {
    fn find(types: &KernelTypes) -> Option<Self> {
        let btf = types.btf()?;
        let of_task = |member| btf.member("task_struct", member);
        let status = of_task("thread_info")? + btf.member("thread_info", "status")?;
        Some(Self { status, start_time: of_task("start_time")? })
    }
}

fn field(event: &CountedEvent, operands: &str, types: &KernelTypes, name: &str) -> Result<Field> {
    if name == DURATION && event.is_system_call_exit() {
        let place = FieldPlace::Duration as u32;
        return Ok(Field { bytes: 8, is_signed: 1, place, ..Field::default() });
    }
    match event.source() {
        EventSource::Tracepoint(tracepoint) => argument_field(event, types, tracepoint, name),
        EventSource::SystemCall(call) => system_call_field(*call, name).ok_or_else(|| {
            let known =
                if call.is_exit { "`arg1` to `arg6`, `ret` and `duration`" } else { "`arg1` to `arg6`" };
            unknown_field(event, name, known)
        }),
        EventSource::Probe(probe) => register_field(name, probe.is_return).ok_or_else(|| {
            let known = if probe.is_return { "`ret`" } else { "`arg1` to `arg6`" };
            unknown_field(event, name, known)
        }),
        EventSource::StaticProbe(_) => operand_field(event, operands, name),
        _ => {
            let name = event.name();
            Err(invalid(format!("`{name}` has no fields: tracepoints, system calls and probes have")))
        }
    }
}

fn unknown_field(event: &CountedEvent, name: &str, known: &str) -> Error {
    invalid(format!("`{}` has no field `{name}`, but {known}", event.name()))
}

/// The conditions of the tracepoints `sys_enter` and `sys_exit` that hold for one system call of 64-bit programs alone.
fn system_call_conditions(call: SystemCall) -> [Condition; 2] {
    let number = if call.is_exit {
        saved_register(offset_of!(user_regs_struct, orig_rax), 8)
    } else {
        second_argument()
    };
    // The kernel stores other bits beside the segment.
    let segment = saved_register(offset_of!(user_regs_struct, cs), 2);
    [
        condition(number, Comparison::Equal, call.number),
        condition(segment, Comparison::Equal, USER_CODE_SEGMENT),
    ]
}

/// An argument of a system call, or its result (System V Application Binary Interface, AMD64, section A.2.1). The kernel keeps
/// the registers of the arguments until the exit.
fn system_call_field(call: SystemCall, name: &str) -> Option<Field> {
    let register = match name {
        "ret" => return call.is_exit.then(second_argument),
        "arg1" => offset_of!(user_regs_struct, rdi),
        "arg2" => offset_of!(user_regs_struct, rsi),
        "arg3" => offset_of!(user_regs_struct, rdx),
        "arg4" => offset_of!(user_regs_struct, r10),
        "arg5" => offset_of!(user_regs_struct, r8),
        "arg6" => offset_of!(user_regs_struct, r9),
        _ => return None,
    };
    Some(saved_register(register, 8))
}

/// A register of `struct pt_regs`, whose address is the first argument of both tracepoints.
fn saved_register(offset: usize, bytes: u32) -> Field {
    let place = FieldPlace::KernelMemory as u32;
    // The structure has 216 bytes.
    let offset = (offset as u32).cast_signed();
    Field { bytes, is_signed: 1, place, offset, ..Field::default() }
}

/// The second argument of both tracepoints: the number of the system call, or its result (`include/trace/events/syscalls.h`).
fn second_argument() -> Field {
    Field { bytes: 8, is_signed: 1, context_offset: 8, ..Field::default() }
}

/// A register of a probe by the calling convention (System V Application Binary Interface, AMD64, section 3.2.3). `struct pt_regs`,
/// the context of the program, begins as the registers that ptrace(2) returns (`arch/x86/include/asm/ptrace.h`).
fn register_field(name: &str, is_return: bool) -> Option<Field> {
    let context_offset = match (name, is_return) {
        ("ret", true) => offset_of!(user_regs_struct, rax),
        ("arg1", false) => offset_of!(user_regs_struct, rdi),
        ("arg2", false) => offset_of!(user_regs_struct, rsi),
        ("arg3", false) => offset_of!(user_regs_struct, rdx),
        ("arg4", false) => offset_of!(user_regs_struct, rcx),
        ("arg5", false) => offset_of!(user_regs_struct, r8),
        ("arg6", false) => offset_of!(user_regs_struct, r9),
        _ => return None,
    };
    let context_offset = u32::try_from(context_offset).ok()?;
    Some(Field { bytes: 8, is_signed: 1, context_offset, ..Field::default() })
}

/// An argument of a tracepoint, or a member of the structure to which it points.
fn argument_field(event: &CountedEvent, types: &KernelTypes, tracepoint: &str, name: &str) -> Result<Field> {
    let btf = types.btf().ok_or_else(|| {
        let message =
            format!("fields of tracepoints need kernel types (BTF), and there is no `{}`", Btf::PATH);
        Error::new(ErrorKind::Unsupported, message)
    })?;
    let arguments = btf.tracepoint_arguments(tracepoint).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("this kernel has no tracepoint `{}`", event.name()))
    })?;
    find_argument(btf, &arguments, name).ok_or_else(|| {
        let known: Vec<_> = arguments
            .iter()
            .map(|argument| format!("{} ({})", argument.name, btf.type_name(argument.type_id)))
            .collect();
        let known = known.join(", ");
        invalid(format!("`{}` has no number `{name}` among its arguments: {known}", event.name()))
    })
}

fn find_argument(btf: &Btf, arguments: &[Variable], name: &str) -> Option<Field> {
    const ARGUMENT_BYTES: usize = size_of::<u64>();
    let (argument, path) =
        name.split_once('.').map_or((name, None), |(argument, path)| (argument, Some(path)));
    let index = arguments.iter().position(|known| known.name == argument)?;
    let context_offset = u32::try_from(index * ARGUMENT_BYTES).ok()?;
    let type_id = arguments[index].type_id;
    let Some(path) = path else {
        let (bytes, is_signed) = btf.number(type_id)?;
        return Some(Field { bytes, is_signed: is_signed.into(), context_offset, ..Field::default() });
    };
    let member = btf.member_by_path(&btf.pointed_structure(type_id)?, path)?;
    let (bytes, is_signed) = btf.number(member.type_id)?;
    Some(Field {
        bytes,
        is_signed: is_signed.into(),
        context_offset,
        place: FieldPlace::KernelMemory as u32,
        offset: i32::try_from(member.offset).ok()?,
        reserved: 0,
    })
}

/// An argument of a static probe, where its operand states that it is.
fn operand_field(event: &CountedEvent, operands: &str, name: &str) -> Result<Field> {
    let operands: Vec<_> = operands.split_ascii_whitespace().collect();
    let index = name.strip_prefix("arg").and_then(|number| number.parse::<usize>().ok()?.checked_sub(1));
    let operand = index.and_then(|index| operands.get(index)).ok_or_else(|| match operands.len() {
        0 => invalid(format!("the static probe `{}` has no arguments", event.name())),
        count => unknown_field(event, name, &format!("`arg1` to `arg{count}`")),
    })?;
    let argument = ProbeArgument::parse(operand).ok_or_else(|| {
        let message = format!(
            "`{name}` of `{}` is at `{operand}`: arguments can be read in general registers, in memory at their addresses, and as constants",
            event.name()
        );
        Error::new(ErrorKind::Unsupported, message)
    })?;
    let (place, register, offset) = match argument.operand {
        Operand::Constant(number) => (FieldPlace::Constant, None, number),
        Operand::Register(register) => (FieldPlace::Argument, Some(register), 0),
        Operand::Memory { base, offset } => (FieldPlace::UserMemory, Some(base), offset),
    };
    Ok(Field {
        bytes: argument.bytes,
        is_signed: argument.is_signed.into(),
        context_offset: register.map_or(0, |register| offset_in_context(register) as u32),
        place: place as u32,
        offset,
        reserved: 0,
    })
}

/// The offset of a register in the context of the program of a probe.
fn offset_in_context(register: Register) -> usize {
    match register {
        Register::Rax => offset_of!(user_regs_struct, rax),
        Register::Rbx => offset_of!(user_regs_struct, rbx),
        Register::Rcx => offset_of!(user_regs_struct, rcx),
        Register::Rdx => offset_of!(user_regs_struct, rdx),
        Register::Rsi => offset_of!(user_regs_struct, rsi),
        Register::Rdi => offset_of!(user_regs_struct, rdi),
        Register::Rbp => offset_of!(user_regs_struct, rbp),
        Register::Rsp => offset_of!(user_regs_struct, rsp),
        Register::R8 => offset_of!(user_regs_struct, r8),
        Register::R9 => offset_of!(user_regs_struct, r9),
        Register::R10 => offset_of!(user_regs_struct, r10),
        Register::R11 => offset_of!(user_regs_struct, r11),
        Register::R12 => offset_of!(user_regs_struct, r12),
        Register::R13 => offset_of!(user_regs_struct, r13),
        Register::R14 => offset_of!(user_regs_struct, r14),
        Register::R15 => offset_of!(user_regs_struct, r15),
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(event: &str, field: &str) -> Result<Field> {
        let event: CountedEvent = event.parse().unwrap();
        EventFields::of(&event.weighted_by(field), OPERANDS, &KernelTypes::default())
            .map(|fields| fields.weight)
    }

    /// Those of a static probe.
    const OPERANDS: &str = "8@%rdi -4@-20(%rbp) 4@$5 8f@%xmm0";

    #[test]
    fn registers_are_the_fields_of_probes() {
        let field = of("uprobe:/lib/a.so:f", "arg1").unwrap();
        assert_eq!((field.bytes, field.context_offset, field.place), (8, 112, FieldPlace::Argument as u32));
        assert_eq!(of("uretprobe:/lib/a.so:f", "ret").unwrap().context_offset, 80);
        assert!(of("uprobe:/lib/a.so:f", "ret").unwrap_err().to_string().contains("`arg1` to `arg6`"));
    }

    #[test]
    fn arguments_are_the_fields_of_tracepoints() {
        // The profiler also runs on kernels without BTF.
        let types = KernelTypes::default();
        let Some(btf) = types.btf() else { return };
        let arguments = btf.tracepoint_arguments("sched_switch").unwrap();
        let previous = arguments.iter().position(|argument| argument.name == "prev").unwrap();
        let field = of("sched:sched_switch", "prev.pid").unwrap();
        assert_eq!(field.context_offset, 8 * previous as u32);
        assert_eq!((field.bytes, field.is_signed, field.place), (4, 1, FieldPlace::KernelMemory as u32));
        assert_eq!(of("sched:sched_switch", "preempt").unwrap().place, FieldPlace::Argument as u32);
        let error = of("sched:sched_switch", "prev.comm").unwrap_err().to_string();
        assert!(
            error.contains("no number `prev.comm`") && error.contains("prev (struct task_struct *)"),
            "{error}"
        );
    }

    #[test]
    fn arguments_and_results_are_the_fields_of_system_calls() {
        let argument = of("syscalls:sys_enter_read", "arg3").unwrap();
        let saved = FieldPlace::KernelMemory as u32;
        assert_eq!((argument.place, argument.context_offset, argument.offset), (saved, 0, 96));
        assert_eq!(of("syscalls:sys_exit_read", "arg4").unwrap().offset, 56);
        let result = of("syscalls:sys_exit_read", "ret").unwrap();
        let place = FieldPlace::Argument as u32;
        assert_eq!((result.place, result.context_offset, result.is_signed), (place, 8, 1));
        let error = of("syscalls:sys_enter_read", "ret").unwrap_err().to_string();
        assert!(error.contains("`arg1` to `arg6`"), "{error}");
    }

    #[test]
    fn a_duration_is_a_field_of_the_exits_of_system_calls() {
        for event in ["syscalls:sys_exit_read", "raw_syscalls:sys_exit", "syscall-time"] {
            assert_eq!(of(event, "duration").unwrap().place, FieldPlace::Duration as u32, "{event}");
        }
        for event in ["syscalls:sys_enter_read", "raw_syscalls:sys_enter", "uprobe:/lib/a.so:f"] {
            assert!(of(event, "duration").is_err(), "{event}");
        }
    }

    #[test]
    fn a_system_call_has_its_own_conditions_beside_the_requested_one() {
        let conditions = |name: &str| {
            let event: CountedEvent = name.parse().unwrap();
            let event = event.only_where("arg1 == 3".parse().unwrap());
            let conditions = EventFields::of(&event, "", &KernelTypes::default()).unwrap().conditions;
            conditions.map(|condition| (condition.number, condition.field.offset))
        };
        assert_eq!(conditions("syscalls:sys_enter_write"), [(1, 0), (0x33, 136), (3, 112)]);
        assert_eq!(conditions("syscalls:sys_exit_write"), [(1, 120), (0x33, 136), (3, 112)]);
    }

    #[test]
    fn other_events_have_no_fields() {
        assert!(of("page-faults", "address").unwrap_err().to_string().contains("no fields"));
    }

    #[test]
    fn operands_are_the_places_of_the_fields_of_static_probes() {
        let field = |name: &str| of("usdt:/lib/a.so:app:start", name);
        let found = |name: &str| {
            let Field { bytes, is_signed, context_offset, place, offset, .. } = field(name).unwrap();
            (bytes, is_signed, context_offset, place, offset)
        };
        assert_eq!(found("arg1"), (8, 0, 112, FieldPlace::Argument as u32, 0));
        assert_eq!(found("arg2"), (4, 1, 32, FieldPlace::UserMemory as u32, -20));
        assert_eq!(found("arg3"), (4, 0, 0, FieldPlace::Constant as u32, 5));
        for (name, message) in [
            ("arg4", "is at `8f@%xmm0`"),
            ("arg5", "`arg1` to `arg4`"),
            ("arg0", "`arg4`"),
            ("ret", "`arg4`"),
        ] {
            let error = field(name).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let event = "usdt:/lib/a.so:app:end".parse::<CountedEvent>().unwrap().weighted_by("arg1");
        assert!(
            EventFields::of(&event, "", &KernelTypes::default())
                .unwrap_err()
                .to_string()
                .contains("no arguments")
        );
    }
}
