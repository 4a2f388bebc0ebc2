//! The machine (instruction set) that an ELF file is for.

use object::elf;

/// The machine that an ELF file is for (`e_machine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// `EM_X86_64`.
    X86_64,
    /// `EM_AARCH64`.
    Aarch64,
}

impl Machine {
    /// The machine that this program runs on.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    pub(crate) const fn elf_value(self) -> elf::Machine {
        match self {
            Self::X86_64 => elf::EM_X86_64,
            Self::Aarch64 => elf::EM_AARCH64,
        }
    }
}
