//! Loads the DWARF sections of a file within the work budget.

use std::sync::Arc;

use gimli::SectionId;
use profiler_binary_reader::{ParseError, WorkBudget};

use crate::{
    dwarf::reader::Reader,
    elf::Elf,
    section::{Section, Sections},
};

/// Loads sections until the budget is exhausted.
#[derive(Debug)]
pub(crate) struct SectionLoader {
    pub(crate) budget: Arc<WorkBudget>,
}

impl SectionLoader {
    /// Reads the section with a name; empty when the file has no such section.
    pub(crate) fn load(
        &self,
        elf: &Elf,
        sections: &Sections,
        name: Option<&str>,
    ) -> Result<Reader, ParseError> {
        let bytes = match name.and_then(|name| find(sections, name)) {
            Some(section) => section.contents(elf.image(), self.budget.section_bytes_left())?,
            None => Arc::default(),
        };
        self.budget.spend_section_bytes(bytes.len() as u64);
        Ok(Reader::new(bytes, Arc::clone(&self.budget)))
    }
}

/// Finds a section by its name, or by its name in the older compressed format.
fn find<'a>(sections: &'a Sections, name: &str) -> Option<Section<'a>> {
    let compressed = || sections.find(name.replacen(".debug_", ".zdebug_", 1).as_bytes());
    sections.find(name.as_bytes()).or_else(compressed)
}

/// Whether a section is used. Locations of variables and macros fill a third of a file and are not.
pub(crate) fn is_needed(id: SectionId) -> bool {
    !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugTypes
    )
}
