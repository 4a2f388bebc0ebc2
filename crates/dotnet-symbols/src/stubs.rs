//! Recognizes the stubs of .NET runtimes by their machine code (x86-64).
//!
//! A runtime generates stubs from templates: code in front of a method that is not compiled yet or can be compiled again
//! (precode), counters of calls, dispatch of calls through interfaces, shuffling of the arguments of delegates, and calls of
//! code that generic instances share. No event and no table lists them.
//!
//! Source: dotnet/runtime, `src/coreclr/vm/amd64` (`thunktemplates.S`, `virtualcallstubcpu.hpp`),
//! `StubLinkerCPU` and `DynamicHelpers`; before .NET 7 `FixupPrecode` and `StubPrecode` in `vm/i386/stublinkerx86.h`, and
//! `CallCountingStubShort` in `vm/amd64/cgencpu.h`.

use profiler_addresses::RuntimeAddress;

/// The bytes around an instruction that [`stub_name`] can need, in front of it and from it on. The longest stub has 111
/// bytes.
pub const MAX_STUB_BYTES: usize = 112;

/// The precode with a pointer to the prestub, from .NET 7 on.
const FIXUP_PRECODE: &str = "ff25........ 4c8b15........ ff25........";

/// Names of stubs in the runtime's source, and their code, longest first: the code of some is a part of another one. Spaces
/// separate instructions. Two dots are a byte that differs from stub to stub, or between versions: .NET 10 encodes the jump of
/// a `ShuffleThunk` in another way.
const TEMPLATES: [(&str, &str); 37] = [
    (
        "ResolveStub",
        "488b07 52 49ba................ 488bd0 48c1e80c 4803c2 4835........ 4825........ \
         4a8b0410 49ba................ 483b50.. 75.. 4c3b50.. 75.. 488b40.. 5a ffe0 \
         48b8................ 8300ff 7d.. 4983cb01 52 49ba................ 50 \
         48b8................ ffe0",
    ),
    (
        "ResolveStub",
        "488b07 52 49ba................ 488bd0 48c1e80c 4803c2 4835........ 4825........ \
         4a8b0410 49ba................ 483b50.. 75.. 4c3b50.. 75.. 488b40.. 5a ffe0 \
         48b8................ 8300ff 7d.. 4983cb01 52 49ba................ \
         48b8................ ffe0",
    ),
    (
        "CallCountingStub",
        "48b8................ 66ff08 740c 48b8................ ffe0 48b8................ ffd0",
    ),
    (
        "InstantiatingStub",
        "4d89c1 4989c8 4889d1 4889f2 4889fe 48bf................ 48b8................ ffe0",
    ),
    ("InstantiatingStub", "4d89c1 4989c8 4889d1 4889f2 48be................ 48b8................ ffe0"),
    ("InstantiatingStub", "4989c8 4889d1 4889f2 4889fe 48bf................ 48b8................ ffe0"),
    ("ShuffleThunk", "488bc4 4989fb 4889f7 4889d6 4889ca 4c89c1 4d89c8 4d8b53.. 4983c3.. ..ffe2"),
    ("DispatchStub", "48b8................ 483907 90 48b8................ 0f85........ ffe0"),
    ("DispatchStub", "48b8................ 483907 48b8................ 0f85........ ffe0"),
    ("InstantiatingStub", "4989c8 4889d1 4889f2 48be................ 48b8................ ffe0"),
    ("InstantiatingStub", "4889d1 4889f2 4889fe 48bf................ 48b8................ ffe0"),
    ("ShuffleThunk", "488bc4 4989fb 4889f7 4889d6 4889ca 4c89c1 4d8b53.. 4983c3.. ..ffe2"),
    ("InstantiatingStub", "4889d1 4889f2 48be................ 48b8................ ffe0"),
    ("InstantiatingStub", "4889f2 4889fe 48bf................ 48b8................ ffe0"),
    ("ShuffleThunk", "488bc4 4989fb 4889f7 4889d6 4889ca 4d8b53.. 4983c3.. ..ffe2"),
    ("InstantiatingStub", "4889f2 48be................ 48b8................ ffe0"),
    ("InstantiatingStub", "4889fe 48bf................ 48b8................ ffe0"),
    ("LookupStub", "90 48b8................ 50 48b8................ ffe0"),
    ("CallCountingStub", "488b05........ 66ff08 7406 ff25........ ff25........"),
    ("CallCountingStub", "48b8................ 66ff08 0f85........ e8........"),
    ("ShuffleThunk", "488bc4 4989fb 4889f7 4889d6 4d8b53.. 4983c3.. ..ffe2"),
    ("InstantiatingStub", "48be................ 48b8................ ffe0"),
    ("InstantiatingStub", "48bf................ 48b8................ ffe0"),
    ("ShuffleThunk", "488bc4 4989fb 4889f7 4d8b53.. 4983c3.. ..ffe2"),
    ("FixupPrecode", FIXUP_PRECODE),
    ("DynamicHelper", "488bf7 48bf................ e9........"),
    ("ShuffleThunk", "488bc4 4989fb 4d8b53.. 4983c3.. ..ffe2"),
    ("UnboxingStub", "4883c708 48b8................ ffe0"),
    ("StubPrecode", "49ba................ 40e9........"),
    ("NDirectImportPrecode", "49ba................ 48e9........"),
    ("DynamicHelper", "48bf................ e9........"),
    ("StubPrecode", "4c8b15........ ff25........"),
    ("JumpStub", "48b8................ ffe0"),
    ("DynamicHelper", "48b8................ c3"),
    ("VTableCallStub", "488b07 488b40.. ff60.."),
    ("FixupPrecode", "e8........5e...."),
    ("FixupPrecode", "e9........5f...."),
];

/// The name of the stub whose instruction is at a position of `code`; `None` for other code.
///
/// ```
/// use profiler_dotnet_symbols::stubs::stub_name;
///
/// // mov rax, [rdi]; mov rax, [rax + 0x40]; jmp [rax + 0x38]
/// let code = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x40, 0x40, 0xff, 0x60, 0x38];
/// assert_eq!(stub_name(&code, 3), Some("VTableCallStub"));
/// assert_eq!(stub_name(&code, 4), None);
/// ```
pub fn stub_name(code: &[u8], position: usize) -> Option<&'static str> {
    let is_stub = |template: &str| {
        instruction_offsets(template).any(|offset| {
            let start = position.checked_sub(offset);
            start.and_then(|start| code.get(start..)).is_some_and(|code| begins_with(code, template))
        })
    };
    TEMPLATES.iter().find(|(_, template)| is_stub(template)).map(|(name, _)| *name)
}

/// The address of the pointer to the prestub, which compiles methods, if the code at `address` is a `FixupPrecode` of .NET 7
/// or later.
pub fn prestub_pointer(code: &[u8], address: RuntimeAddress) -> Option<RuntimeAddress> {
    // The last instruction jumps through the pointer. Its operand is relative to the end of the instruction.
    const OPERAND: usize = 15;
    const END: u64 = 19;
    let operand = code.get(OPERAND..)?.first_chunk().filter(|_| begins_with(code, FIXUP_PRECODE))?;
    let distance = i64::from(i32::from_le_bytes(*operand));
    Some(RuntimeAddress(address.0.checked_add(END)?.checked_add_signed(distance)?))
}

/// The target of the jump at the end of the code at `address`, if it is a `DynamicHelper` or a `JumpStub`.
pub fn jump_target(code: &[u8], address: RuntimeAddress) -> Option<RuntimeAddress> {
    const ABSOLUTE_OPERAND: usize = 2;
    const RELATIVE_JUMP: &str = "e9........";
    const RELATIVE_OPERAND_BYTES: usize = 4;
    match stub_name(code, 0)? {
        "JumpStub" => {
            let target = code.get(ABSOLUTE_OPERAND..)?.first_chunk()?;
            Some(RuntimeAddress(u64::from_le_bytes(*target)))
        }
        "DynamicHelper" => {
            let (_, template) = TEMPLATES
                .iter()
                .find(|(name, template)| *name == "DynamicHelper" && begins_with(code, template))?;
            if !template.ends_with(RELATIVE_JUMP) {
                return None;
            }
            let end = template.split(' ').map(|instruction| instruction.len() / 2).sum::<usize>();
            let operand = code.get(end - RELATIVE_OPERAND_BYTES..)?.first_chunk()?;
            let distance = i64::from(i32::from_le_bytes(*operand));
            Some(RuntimeAddress(address.0.checked_add(end as u64)?.checked_add_signed(distance)?))
        }
        _ => None,
    }
}

/// The offset in bytes of each instruction of a template.
fn instruction_offsets(template: &str) -> impl Iterator<Item = usize> {
    template.split(' ').scan(0, |next, instruction| {
        let offset = *next;
        *next += instruction.len() / 2;
        Some(offset)
    })
}

fn begins_with(code: &[u8], template: &str) -> bool {
    let mut code = code.iter();
    template.split(' ').flat_map(|instruction| instruction.as_bytes().chunks(2)).all(|digits| {
        let expected =
            std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        code.next().is_some_and(|byte| digits == b".." || Some(*byte) == expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of a template, with `filler` as the bytes that differ.
    fn code_of(template: &str, filler: u8) -> Vec<u8> {
        let bytes = template.split(' ').flat_map(|instruction| instruction.as_bytes().chunks(2));
        bytes
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap_or(filler))
            .collect()
    }

    #[test]
    fn each_instruction_of_a_stub_has_its_name() {
        for (name, template) in TEMPLATES {
            let code = [&[0xcc; 40][..], &code_of(template, 0x77), &[0xcc; 40]].concat();
            assert!(code.len() - 80 <= MAX_STUB_BYTES);
            let offsets: Vec<_> = instruction_offsets(template).collect();
            for position in 0..code.len() {
                let is_instruction = position.checked_sub(40).is_some_and(|offset| offsets.contains(&offset));
                assert_eq!(stub_name(&code, position), is_instruction.then_some(name), "{name} {position}");
            }
        }
    }

    #[test]
    fn a_stub_with_another_instruction_or_without_its_end_has_no_name() {
        let (_, template) = TEMPLATES.iter().find(|(_, template)| template.starts_with("488b05")).unwrap();
        let code = code_of(template, 1);
        assert_eq!(stub_name(&code, 0), Some("CallCountingStub"));
        assert_eq!(stub_name(&code[..code.len() - 1], 0), None);
        for position in [0, 7, 10, 12] {
            let mut changed = code.clone();
            changed[position] ^= 0x10;
            assert_eq!(stub_name(&changed, 0), None, "{position}");
        }
        assert_eq!(stub_name(&[], 0), None);
        assert_eq!(stub_name(&code, usize::MAX), None);
    }

    #[test]
    fn the_prestub_is_behind_the_last_jump_of_a_fixup_precode() {
        let code = hex("ff25fa3f00004c8b15fb3f0000ff25fd3f0000");
        assert_eq!(prestub_pointer(&code, RuntimeAddress(0x1000)), Some(RuntimeAddress(0x5010)));
        assert_eq!(prestub_pointer(&code, RuntimeAddress(u64::MAX - 5)), None);
        assert_eq!(prestub_pointer(&code[..18], RuntimeAddress(0x1000)), None);
        assert_eq!(prestub_pointer(&hex("4c8b15f93f0000ff25fb3f000090ff25fa3f00"), RuntimeAddress(0)), None);
    }

    #[test]
    fn the_target_of_a_jump_is_relative_or_absolute() {
        let target = |digits: &str| jump_target(&hex(digits), RuntimeAddress(0x10000));
        assert_eq!(target("48b880357f37c57f0000ffe0"), Some(RuntimeAddress(0x7fc5_377f_3580)));
        assert_eq!(target("48bf88633fb9c47f0000e9f1ffffff"), Some(RuntimeAddress(0x10000)));
        assert_eq!(target("488bf748bf88633fb9c47f0000e900010000"), Some(RuntimeAddress(0x10112)));
        assert_eq!(target("488b07488b4040ff6038"), None);
        assert_eq!(target("48b84802005ce97e0000c3"), None, "a helper without a jump");
        assert_eq!(target("48bf88633fb9c47f0000e9f1ffff"), None);
    }

    #[test]
    fn templates_are_sorted_by_length() {
        let lengths: Vec<_> = TEMPLATES.iter().map(|(_, template)| code_of(template, 0).len()).collect();
        assert!(lengths.is_sorted_by(|one, other| one >= other), "{lengths:?}");
    }

    #[test]
    fn stubs_of_a_running_program_are_recognized() {
        // .NET 9.0.1: a page of precodes, and a resolve stub.
        let page =
            hex("ff25fa3f00004c8b15fb3f0000ff25fd3f000090488b05f9ff25fa3f00004c8b15fb3f0000ff25fd3f0000");
        assert_eq!([0, 6, 13, 24].map(|at| stub_name(&page, at)), [Some("FixupPrecode"); 4]);
        let page = hex(
            "4c8b15f93f0000ff25fb3f000090ff25fa3f00004c8b15fb4c8b15f93f0000ff25fb3f000090ff25fa3f00004c8b15fb",
        );
        assert_eq!([0, 7, 24, 31].map(|at| stub_name(&page, at)), [Some("StubPrecode"); 4]);
        let thunk = hex("488bc44989fb4889f74d8b53204983c320..ffe2");
        assert_eq!([0, 13, 17].map(|at| stub_name(&thunk, at)), [Some("ShuffleThunk"); 3]);
        let resolve = hex(
            "488b075249bad090866af1550000488bd048c1e80c4803c24835b83900004825f87f00004a8b041049ba01000000020000\
             00483b5000752b4c3b50087525488b40105affe048b8ac61826af15500008300ff7dac4983cb015249ba0100000002\
             00000048b861400cef097f0000ffe0",
        );
        assert_eq!(stub_name(&resolve, 66), Some("ResolveStub"));
        // ASP.NET Core 9.0.1 under load.
        let dispatch = hex("48b83883ab75297f00004839079048b8306ab475297f00000f85f7820100ffe0");
        assert_eq!([0, 10, 13, 14, 24, 30].map(|at| stub_name(&dispatch, at)), [Some("DispatchStub"); 6]);
        let resolve = hex(
            "488b075249ba40d539e591550000488bd048c1e80c4803c24835b05a00004825f87f00004a8b041049ba000000008c000000\
             483b5000752b4c3b50087525488b40105affe048b880d536e5915500008300ff7dac4983cb015249ba000000008c000000\
             5048b861402cf2297f0000ffe0",
        );
        assert_eq!([66, 99].map(|at| stub_name(&resolve, at)), [Some("ResolveStub"); 2]);
        let instance = hex("4889f248be10917876297f000048b8f0806e76297f0000ffe0");
        assert_eq!([0, 3, 13, 23].map(|at| stub_name(&instance, at)), [Some("InstantiatingStub"); 4]);
        let shared = hex("4889fe48bfb8616f76297f000048b8883e6e76297f0000ffe0");
        assert_eq!([0, 3, 13, 23].map(|at| stub_name(&shared, at)), [Some("InstantiatingStub"); 4]);
        let constant = hex("48b84802005ce97e0000c3");
        assert_eq!([0, 10].map(|at| stub_name(&constant, at)), [Some("DynamicHelper"); 2]);
        // .NET 10.0.9.
        let thunk = hex("488bc44989fb4889f74d8b53204983c32041ffe2");
        assert_eq!([0, 13, 17].map(|at| stub_name(&thunk, at)), [Some("ShuffleThunk"); 3]);
        assert_eq!(stub_name(&hex("4883c70848b8780c7fda00560000ffe0"), 0), Some("UnboxingStub"));
    }

    fn hex(digits: &str) -> Vec<u8> {
        code_of(digits, 0)
    }
}
