//! Symbolizes single kernel addresses with a BPF program, because `/proc/kallsyms` can only be read as a whole.
//!
//! The program formats the address by `bpf_snprintf` with `%pS`. It needs Linux 5.14, the first version with
//! `BPF_PROG_TYPE_SYSCALL` (bpf(2)).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::{
    bpf::{self, MapShape, ProgramCode, ProgramType},
    bpf_array::ArrayMapping,
};

/// `BPF_MAP_TYPE_ARRAY`.
const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_F_RDONLY_PROG`: the verifier requires the format to be constant.
const MAP_READ_ONLY_IN_PROGRAM: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`.
const MAP_MAPPABLE: u32 = 1 << 10;
/// `BPF_FUNC_snprintf`.
const SNPRINTF: i32 = 165;

/// Prints `name+0x12/0x34 [module]`.
const FORMAT: [u8; 8] = *b"%pS\0\0\0\0\0";
const ADDRESS_BYTES: usize = size_of::<u64>();
/// Names have at most `KSYM_NAME_LEN`, 512 bytes; offset, size and module follow.
const TEXT_BYTES: usize = 640;

/// The program, and the map for its input (the address) and its output (the text), in memory: a profile of a whole machine
/// has thousands of addresses, and each system call is filtered by the sandbox.
#[derive(Debug)]
pub struct KernelNames {
    exchange: ArrayMapping,
    program: OwnedFd,
}

impl KernelNames {
    /// Loads the program.
    ///
    /// # Errors
    /// The kernel refuses it: it has no programs of this type, or the caller has no privilege.
    pub fn load() -> io::Result<Self> {
        let exchange = array("names", ADDRESS_BYTES + TEXT_BYTES, MAP_MAPPABLE)?;
        let format = array("name_format", FORMAT.len(), MAP_READ_ONLY_IN_PROGRAM)?;
        bpf::update_element(format.as_fd(), &FIRST, &FORMAT)?;
        bpf::freeze(format.as_fd())?;
        let code = program(exchange.as_fd(), format.as_fd());
        let program = bpf::load_program(
            "kernel_name",
            ProgramType::Syscall,
            ProgramCode { instructions: &code, license: c"GPL", functions: None },
        )
        .map_err(io::Error::other)?;
        let exchange = ArrayMapping::new(exchange.as_fd(), 0, ADDRESS_BYTES + TEXT_BYTES)?;
        Ok(Self { exchange, program })
    }

    /// The symbol of an address: `name+0x12/0x34 [module]`.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn name(&mut self, address: u64) -> io::Result<String> {
        self.exchange.write(&address.to_ne_bytes());
        bpf::run_program(self.program.as_fd())?;
        let mut output = [0; TEXT_BYTES];
        self.exchange.read(ADDRESS_BYTES, &mut output);
        Ok(text(&output))
    }
}

fn text(output: &[u8]) -> String {
    let end = memchr::memchr(0, output).unwrap_or(output.len());
    String::from_utf8_lossy(&output[..end]).into_owned()
}

/// The key of the first element of an array.
const FIRST: [u8; 4] = [0; 4];

fn array(name: &str, value_bytes: usize, flags: u32) -> io::Result<OwnedFd> {
    let value_bytes = u32::try_from(value_bytes).map_err(io::Error::other)?;
    let shape = MapShape { map_type: MAP_TYPE_ARRAY, key_bytes: 4, value_bytes, max_entries: 1, flags };
    bpf::create_map(name, shape, None)
}

/// `return bpf_snprintf(exchange.text, sizeof exchange.text, format, &exchange.address, 8)`.
fn program(exchange: BorrowedFd<'_>, format: BorrowedFd<'_>) -> Vec<u8> {
    [
        &load_address(1, exchange, ADDRESS_BYTES)[..],
        &[load_number(2, TEXT_BYTES)],
        &load_address(3, format, 0),
        &load_address(4, exchange, 0),
        &[load_number(5, ADDRESS_BYTES), instruction(CALL, 0, 0, SNPRINTF), instruction(EXIT, 0, 0, 0)],
    ]
    .concat()
    .concat()
}

/// Opcodes of `include/uapi/linux/bpf.h`: `BPF_LD | BPF_IMM | BPF_DW`, `BPF_ALU64 | BPF_MOV | BPF_K`,
/// `BPF_JMP | BPF_CALL`, `BPF_JMP | BPF_EXIT`.
const LOAD_ADDRESS: u8 = 0x18;
const LOAD_NUMBER: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `BPF_PSEUDO_MAP_VALUE`: the address of the first value of a map, and an offset in it.
fn load_address(register: u8, map: BorrowedFd<'_>, offset: usize) -> [[u8; 8]; 2] {
    const MAP_VALUE: u8 = 2;
    [
        instruction(LOAD_ADDRESS, register, MAP_VALUE, map.as_raw_fd()),
        instruction(0, 0, 0, i32::try_from(offset).unwrap_or(i32::MAX)),
    ]
}

fn load_number(register: u8, number: usize) -> [u8; 8] {
    instruction(LOAD_NUMBER, register, 0, i32::try_from(number).unwrap_or(i32::MAX))
}

fn instruction(code: u8, to: u8, from: u8, number: i32) -> [u8; 8] {
    let [n0, n1, n2, n3] = number.to_ne_bytes();
    [code, to | from << 4, 0, 0, n0, n1, n2, n3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_instruction_layout_of_the_kernel() {
        let maps = [(); 2].map(|()| OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let code = program(maps[0].as_fd(), maps[1].as_fd());
        assert_eq!(code.len(), 10 * 8);
        assert_eq!(code[..8], instruction(0x18, 1, 2, maps[0].as_raw_fd()));
        assert_eq!(code[8..16], [0, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(code[64..72], [0x85, 0, 0, 0, 165, 0, 0, 0]);
        assert_eq!(code[72..], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_text_ends_at_its_nul_or_with_the_buffer() {
        assert_eq!(text(b"schedule+0x1/0x2\0rest"), "schedule+0x1/0x2");
        assert_eq!(text(b"schedule"), "schedule");
        assert_eq!(text(b"\xff\0"), "\u{fffd}");
    }
}
