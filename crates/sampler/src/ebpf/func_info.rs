//! BTF and `bpf_func_info` for programs with callbacks (`bpf_loop`) and subprograms.
//!
//! The verifier accepts a callback only if its function has a BTF type and static linkage (`check_ld_imm`,
//! `kernel/bpf/verifier.c`). The BTF that the compiler writes names every source file of the build; one common function
//! type is enough for the verifier.

/// `enum btf_kind` of `include/uapi/linux/btf.h`.
const KIND_INT: u32 = 1;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
/// A signed 32-bit integer in the encoding of `BTF_INT_DATA`.
const SIGNED_32_BIT: u32 = 1 << 24 | 32;

/// The string section: it starts with the empty string.
const STRINGS: &[u8] = b"\0int\0profiler\0\0\0";
const NAME_INT: u32 = 1;
const NAME_FUNCTION: u32 = 5;

/// The id of the type of all functions: the third one.
const FUNCTION_TYPE: u32 = 3;

/// `BPF_PSEUDO_CALL` and `BPF_PSEUDO_FUNC` of `include/uapi/linux/bpf.h`, with the opcodes that they modify.
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const PSEUDO_FUNCTION: u8 = 4;

/// The BTF for `BPF_BTF_LOAD` (`Documentation/bpf/btf.rst`): one function `int profiler(void)`.
pub(super) fn btf() -> Vec<u8> {
    const MAGIC_AND_VERSION: u32 = 0x0001_eb9f;
    const HEADER_BYTES: u32 = 24;
    let types = [
        [NAME_INT, KIND_INT << 24, 4].as_slice(),
        &[SIGNED_32_BIT],
        &[0, KIND_FUNC_PROTO << 24, 1],
        &[NAME_FUNCTION, KIND_FUNC << 24, 2],
    ]
    .concat();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let types_bytes = length(size_of_val(types.as_slice()));
    let header = [MAGIC_AND_VERSION, HEADER_BYTES, 0, types_bytes, types_bytes, length(STRINGS.len())];
    let words = header.iter().chain(&types);
    words.flat_map(|word| word.to_ne_bytes()).chain(STRINGS.iter().copied()).collect()
}

/// The start of each function of a program with its type id: `struct bpf_func_info`.
pub(super) fn func_info(instructions: &[[u8; 8]]) -> Vec<[u32; 2]> {
    let starts =
        instructions.iter().enumerate().filter_map(|(index, [code, registers, _, _, target @ ..])| {
            let source = registers >> 4;
            let is_call = *code == CALL && source == PSEUDO_CALL;
            let is_address = *code == LOAD_IMMEDIATE_64 && source == PSEUDO_FUNCTION;
            let distance = i64::from(i32::from_ne_bytes(*target)) + 1;
            if is_call || is_address {
                u32::try_from(i64::try_from(index).ok()? + distance).ok()
            } else {
                None
            }
        });
    let mut starts: Vec<u32> = std::iter::once(0).chain(starts).collect();
    starts.sort_unstable();
    starts.dedup();
    starts.into_iter().map(|start| [start, FUNCTION_TYPE]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn functions_begin_at_the_targets_of_calls_and_callback_addresses() {
        let call = [CALL, PSEUDO_CALL << 4, 0, 0, 4, 0, 0, 0];
        let address = [LOAD_IMMEDIATE_64, PSEUDO_FUNCTION << 4, 0, 0, 1, 0, 0, 0];
        let helper = [CALL, 0, 0, 0, 5, 0, 0, 0];
        let program = [NOTHING, call, address, NOTHING, NOTHING, helper, NOTHING];
        assert_eq!(func_info(&program), [[0, FUNCTION_TYPE], [4, FUNCTION_TYPE], [6, FUNCTION_TYPE]]);
    }

    #[test]
    fn the_btf_has_the_lengths_of_its_header() {
        let btf = btf();
        let word = |at: usize| u32::from_ne_bytes(btf[at..at + 4].try_into().unwrap()) as usize;
        let [header, types_at, types_bytes, strings_at, strings] = [4, 8, 12, 16, 20].map(word);
        assert_eq!(types_at, 0);
        assert_eq!(strings_at, types_bytes);
        assert_eq!(btf.len(), header + types_bytes + strings);
    }
}
