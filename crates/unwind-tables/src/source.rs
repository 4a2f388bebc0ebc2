//! What the table of a file is made of: read once, and told apart from others before a table is made of it.

use super::{UnwindTable, elf_source::ElfSource, precompiled::Precompiled};
use profiler_binary_reader::{Image, ParseError, SegmentLayout};
use profiler_dotnet_symbols::pe::is_pe;
use profiler_elf_symbols::Elf;

/// Everything of a file that its table and the mappings that lead there depend on. The same hash, the same table.
#[derive(Hash)]
pub struct TableSource {
    layout: SegmentLayout,
    kind: Kind,
}

#[derive(Hash)]
enum Kind {
    Elf(ElfSource),
    Precompiled(Precompiled),
}

impl TableSource {
    /// Reads it, as what the first bytes of the file say it is. `None` where it says nothing of its code.
    pub fn read(image: Image) -> Result<Option<Self>, ParseError> {
        if is_pe(&image) {
            let precompiled = Precompiled::read(image)?;
            return Ok(precompiled.map(|(code, layout)| Self { layout, kind: Kind::Precompiled(code) }));
        }
        let elf = Elf::parse(image)?;
        Ok(Some(Self { layout: elf.layout(), kind: Kind::Elf(ElfSource::read(&elf)?) }))
    }

    /// Whether it is of precompiled .NET code.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, Kind::Precompiled(_))
    }

    /// Where a mapping of the file begins in its table.
    pub fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    /// The table. It is empty where the file describes no function. Whether it may go on is asked now and
    /// then: a file that lies can take a second. [`ParseError::TooLarge`] when it may not.
    pub fn table(&self, may_go_on: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        match &self.kind {
            Kind::Elf(elf) => elf.table(may_go_on),
            Kind::Precompiled(code) => code.table(may_go_on),
        }
    }
}
