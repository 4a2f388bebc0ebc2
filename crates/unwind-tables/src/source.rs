//! The unwind information of one file, ELF or .NET image, or of JIT code, before it is compiled to a table.

use std::ops::Range;

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Image, ParseError, SegmentLayout};
use profiler_dotnet_symbols::pe::is_pe;
use profiler_elf_symbols::{Elf, Machine};

use crate::{
    elf_source::ElfSource,
    jit_source::{JitFunction, JitSource},
    managed_function::{ManagedFunction, ManagedSource},
    precompiled::PrecompiledSource,
    table::UnwindTable,
};

/// Everything of a file or of JIT code that its unwind table depends on. Sources with equal hashes have equal tables, so that a table can
/// be shared between copies of a file.
#[derive(Hash)]
pub struct TableSource {
    layout: SegmentLayout,
    kind: Kind,
}

#[derive(Hash)]
enum Kind {
    Elf(ElfSource),
    Precompiled(PrecompiledSource),
    Jit(JitSource),
    Managed(ManagedSource),
}

impl TableSource {
    /// Reads an ELF file or a .NET image; `None` for a .NET image without precompiled code of this machine.
    ///
    /// # Errors
    /// When the file is neither, is malformed, or exceeds a limit.
    pub fn read(image: Image) -> Result<Option<Self>, ParseError> {
        Self::read_with_debug_file(image, |_| None)
    }

    /// As [`read`](Self::read). `find_debug_file` is called for an ELF file whose call frame information cannot describe its
    /// code. Where it has no FDE, the `.debug_frame` (DWARF 5, section 6.4.1) of the debug file is used.
    ///
    /// # Errors
    /// When the file is neither an ELF file nor a .NET image, is malformed, or exceeds a limit.
    pub fn read_with_debug_file(
        image: Image,
        find_debug_file: impl FnOnce(&Elf) -> Option<Elf>,
    ) -> Result<Option<Self>, ParseError> {
        if is_pe(&image) {
            let precompiled = PrecompiledSource::read(image)?;
            return Ok(precompiled.map(|(code, layout)| Self { layout, kind: Kind::Precompiled(code) }));
        }
        let elf = Elf::parse(image)?;
        Ok(Some(Self { layout: elf.layout(), kind: Kind::Elf(ElfSource::read(&elf, find_debug_file)?) }))
    }

    /// The call frame information of the JIT code in a mapping of `memory`. Functions outside of it and malformed sections are
    /// left out.
    pub fn of_jit_code<'a>(
        machine: Machine,
        memory: Range<RuntimeAddress>,
        mapped_offset: FileOffset,
        functions: impl IntoIterator<Item = JitFunction<'a>>,
    ) -> Self {
        let layout = memory_layout(&memory, mapped_offset);
        Self { layout, kind: Kind::Jit(JitSource::read(machine, memory, functions)) }
    }

    /// The functions of .NET that were compiled into a mapping of `memory`, in ascending order. Functions that are not within it, or
    /// begin in another one, are left out.
    pub fn of_managed_functions<'a>(
        memory: &Range<RuntimeAddress>,
        mapped_offset: FileOffset,
        functions: impl IntoIterator<Item = &'a ManagedFunction>,
    ) -> Self {
        let layout = memory_layout(memory, mapped_offset);
        Self { layout, kind: Kind::Managed(ManagedSource::new(memory, functions)) }
    }

    /// Whether the file is a .NET image with precompiled code.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Precompiled(_))
    }

    /// Whether it is of JIT code.
    pub fn is_of_jit_code(&self) -> bool {
        matches!(self.kind, Kind::Jit(_) | Kind::Managed(_))
    }

    /// The segments of the file, which convert the addresses of a mapping to those of the table.
    pub fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    /// Compiles the table; empty when the file has no unwind information.
    ///
    /// `should_continue` is called regularly, since a hostile file can take a second.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        match &self.kind {
            Kind::Elf(elf) => elf.compile(should_continue),
            Kind::Precompiled(code) => code.compile(should_continue),
            Kind::Jit(code) => code.compile(should_continue),
            Kind::Managed(code) => code.compile(should_continue),
        }
    }
}

/// The layout of JIT code: addresses of its table are relative to the start of its mapping.
fn memory_layout(memory: &Range<RuntimeAddress>, mapped_offset: FileOffset) -> SegmentLayout {
    let bytes = memory.end.0.saturating_sub(memory.start.0);
    SegmentLayout::from_sections(std::iter::once((mapped_offset, ElfAddress(0), bytes, true)))
}
