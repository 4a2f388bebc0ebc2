//! Decodes the calls of JIT and precompiled code, and the jumps of stubs to which they lead (x86-64).
//!
//! Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, `CALL`, `JMP`, `MOV`.

use profiler_addresses::RuntimeAddress;

use crate::stubs::jump_target;

/// The bytes in front of a return address that [`call_destination`] can need.
pub const MAX_CALL_BYTES: usize = 12;

/// Where a call or a jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this address.
    Direct(RuntimeAddress),
    /// To the address in the pointer at this address.
    Indirect(RuntimeAddress),
}

/// The destination of the call in front of a return address; `code` ends there. `None` if no call with a known destination
/// is there: for example, an index into a table of virtual methods is in a register.
///
/// ```
/// use profiler_addresses::RuntimeAddress;
/// use profiler_dotnet_symbols::calls::{Destination, call_destination};
///
/// // call [rip + 0x20]
/// let code = [0xff, 0x15, 0x20, 0, 0, 0];
/// let expected = Destination::Indirect(RuntimeAddress(0x1020));
/// assert_eq!(call_destination(&code, RuntimeAddress(0x1000)), Some(expected));
/// ```
pub fn call_destination(code: &[u8], return_address: RuntimeAddress) -> Option<Destination> {
    // mov rax, target; call rax
    if let Some([0x48, 0xb8, target @ .., 0xff, 0xd0]) = code.last_chunk::<12>() {
        return Some(Destination::Direct(RuntimeAddress(u64::from_le_bytes(*target))));
    }
    // mov rax, pointer; call [rax]
    if let Some([0x48, 0xb8, pointer @ .., 0xff, 0x10]) = code.last_chunk::<12>() {
        return Some(Destination::Indirect(RuntimeAddress(u64::from_le_bytes(*pointer))));
    }
    if let Some([0xff, 0x15, operand @ ..]) = code.last_chunk::<6>() {
        return relative(return_address, *operand).map(Destination::Indirect);
    }
    match code.last_chunk::<5>() {
        Some([0xe8, operand @ ..]) => relative(return_address, *operand).map(Destination::Direct),
        _ => None,
    }
}

/// The destination of the code at `address` if all that it does is to jump: a precode, a jump stub, or a helper for one place
/// in precompiled code.
pub fn jump_destination(code: &[u8], address: RuntimeAddress) -> Option<Destination> {
    let end = |bytes: u64| address.0.checked_add(bytes).map(RuntimeAddress);
    match code {
        // jmp [rip + operand]
        [0xff, 0x25, rest @ ..] => relative(end(6)?, *rest.first_chunk()?).map(Destination::Indirect),
        // mov r10, [rip + ...]; jmp [rip + operand]
        [0x4c, 0x8b, 0x15, _, _, _, _, 0xff, 0x25, rest @ ..] => {
            relative(end(13)?, *rest.first_chunk()?).map(Destination::Indirect)
        }
        [0xe9, rest @ ..] => relative(end(5)?, *rest.first_chunk()?).map(Destination::Direct),
        _ => jump_target(code, address).map(Destination::Direct),
    }
}

/// An address relative to the end of an instruction.
fn relative(end: RuntimeAddress, operand: [u8; 4]) -> Option<RuntimeAddress> {
    let distance = i64::from(i32::from_le_bytes(operand));
    end.0.checked_add_signed(distance).map(RuntimeAddress)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: RuntimeAddress = RuntimeAddress(0x10000);
    const FAR: u64 = 0x7fc5_377f_3580;

    fn code(address: u64) -> Option<Destination> {
        Some(Destination::Direct(RuntimeAddress(address)))
    }

    fn pointer(address: u64) -> Option<Destination> {
        Some(Destination::Indirect(RuntimeAddress(address)))
    }

    /// `mov rax, FAR`, and these instructions.
    fn with_address(instructions: &[u8]) -> Vec<u8> {
        [&[0x48, 0xb8][..], &FAR.to_le_bytes(), instructions].concat()
    }

    #[test]
    fn calls_have_relative_absolute_and_indirect_destinations() {
        let cases = [
            (vec![0xe8, 0xf0, 0xff, 0xff, 0xff], code(0xfff0)),
            (vec![0xff, 0x15, 0x00, 0x01, 0, 0], pointer(0x10100)),
            (with_address(&[0xff, 0xd0]), code(FAR)),
            (with_address(&[0xff, 0x10]), pointer(FAR)),
        ];
        for (call, expected) in cases {
            assert!(call.len() <= MAX_CALL_BYTES);
            assert_eq!(call_destination(&[&[0x90; 20], &call[..]].concat(), ADDRESS), expected);
            assert_eq!(call_destination(&call, ADDRESS), expected, "the call is at the start of the mapping");
            let cut = call.get(1..).unwrap();
            assert_ne!(call_destination(cut, ADDRESS), expected, "{cut:x?}");
        }
    }

    #[test]
    fn calls_through_other_registers_and_beyond_the_address_space_have_no_destination() {
        let calls: [&[u8]; 5] = [
            &[0xff, 0x50, 0x20],                   // call [rax + 0x20]
            &[0x41, 0xff, 0xd3],                   // call r11
            &[0x90, 0x90, 0xff, 0xd0],             // call rax
            &[0x48, 0x8b, 0x00, 0x90, 0xff, 0x10], // call [rax]
            &[],
        ];
        for call in calls {
            assert_eq!(call_destination(call, ADDRESS), None, "{call:x?}");
        }
        let forward = [0xe8, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(call_destination(&forward, RuntimeAddress(u64::MAX)), None);
        assert_eq!(jump_destination(&[0xe9, 0, 0, 0, 0], RuntimeAddress(u64::MAX)), None);
    }

    #[test]
    fn stubs_that_jump_have_a_destination() {
        let cases = [
            (vec![0xff, 0x25, 0xfa, 0x3f, 0, 0, 0x4c], pointer(0x14000)),
            (vec![0x4c, 0x8b, 0x15, 0xf9, 0x3f, 0, 0, 0xff, 0x25, 0xfb, 0x3f, 0, 0], pointer(0x14008)),
            (vec![0xe9, 0x00, 0x01, 0, 0, 0x5f], code(0x10105)),
            (with_address(&[0xff, 0xe0]), code(FAR)),
            (
                vec![0x48, 0xbf, 0x88, 0x63, 0x3f, 0xb9, 0xc4, 0x7f, 0, 0, 0xe9, 0xf1, 0xff, 0xff, 0xff],
                code(0x10000),
            ),
        ];
        for (stub, expected) in cases {
            assert_eq!(jump_destination(&stub, ADDRESS), expected, "{stub:x?}");
            assert_eq!(jump_destination(&stub[..4], ADDRESS), None, "{stub:x?}");
        }
        let prologue = [0x55, 0x48, 0x8b, 0xec];
        assert_eq!(jump_destination(&prologue, ADDRESS), None);
    }
}
