//! Names of precompiled .NET code (ReadyToRun), from the image alone.
//!
//! ```text
//! address in a mapping ─ pe ─> address in the image ─ readytorun, entry_points ─> method ─ names ─> name
//!        │ bundle: in a                │ native_format: its tables          assemblies: whose │ metadata: rows
//!        └ single-file program         └────── pieces: of the file what is asked for ─────────┘ and strings
//! ```

mod assemblies;
mod bundle;
mod entry_points;
mod home;
mod metadata;
mod names;
mod native_format;
mod readytorun;
mod signature;

use std::sync::Arc;

use self::{
    assemblies::Assemblies,
    names::Names,
    readytorun::{Place, ReadyToRun},
};
pub(crate) use self::{bundle::Bundle, home::Home};
use super::{
    budget::Budget,
    debug_file::DebugFiles,
    managed::{ManagedName, Tier},
    symbol::Symbolized,
};
pub(crate) use crate::pe::is_pe;
use crate::{
    address::{ElfAddress, FileOffset, RuntimeAddress},
    elf::Image,
    pe::{self, Pe, bytes, pieces, pieces::Pieces},
    profile::{Reason, SymbolSource},
};

/// A .NET image that is mapped into processes. Stays open, so that names survive the process and the file.
pub(crate) struct ReadyToRunModule {
    pieces: Pieces,
    pe: Pe,
    home: Home,
    /// Read at the first look-up.
    code: Option<Result<PrecompiledCode, Reason>>,
}

struct PrecompiledCode {
    tables: ReadyToRun,
    assemblies: Assemblies,
}

impl ReadyToRunModule {
    /// Reads the headers. `budget` is that of all symbols and debug information.
    pub(crate) fn open(image: Image, home: Home, budget: &Arc<Budget>) -> Result<Self, Reason> {
        let mut pieces = Pieces::new(image, Arc::clone(budget))?;
        let pe = Pe::read(&mut pieces)?;
        Ok(Self { pieces, pe, home, code: None })
    }

    /// Whether it has the code of several assemblies.
    pub(crate) fn is_composite(&self) -> bool {
        self.pe.is_composite
    }

    /// The image's own address of code that runs at `address`, in a mapping of the file's bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub(crate) fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        let address = self.pe.address(mapping_start, mapping_offset, address)?;
        Some(ElfAddress(address.into()))
    }

    /// The method at an address of the image. Where other assemblies name it, they are looked for in `files`.
    pub(crate) fn symbolize(
        &mut self,
        address: ElfAddress,
        files: &DebugFiles,
    ) -> Result<Symbolized, Reason> {
        let (pieces, home) = (&mut self.pieces, &self.home);
        let code = self.code.get_or_insert_with(|| PrecompiledCode::read(pieces, &self.pe, home.clone()));
        let code = code.as_mut().map_err(|reason| *reason)?;
        let name = code.name(pieces, address, files)?;
        Ok(Symbolized::managed(SymbolSource::ReadyToRun, name))
    }
}

impl PrecompiledCode {
    fn read(pieces: &mut Pieces, pe: &Pe, home: Home) -> Result<Self, Reason> {
        let (tables, descriptions) = ReadyToRun::read(pieces, pe)?.ok_or(Reason::NoSymbols)?;
        let assemblies = Assemblies::read(pieces, descriptions, home)?;
        Ok(Self { tables, assemblies })
    }

    fn name(
        &mut self,
        pieces: &mut Pieces,
        address: ElfAddress,
        files: &DebugFiles,
    ) -> Result<ManagedName<'static>, Reason> {
        let address = u32::try_from(address.0).map_err(|_| Reason::NoSymbolHere)?;
        match self.tables.find(pieces, address)?.ok_or(Reason::NoSymbolHere)? {
            Place::Method(method) => {
                let name = self.names(pieces, files).method(method)?;
                Ok(ManagedName { name: name.into(), tier: Some(Tier::Precompiled) })
            }
            Place::DelayLoadThunk => Ok(ManagedName { name: "stub DelayLoadThunk".into(), tier: None }),
        }
    }

    fn names<'a>(&'a mut self, pieces: &'a mut Pieces, files: &'a DebugFiles) -> Names<'a> {
        let instances = self.tables.instances;
        Names { pieces, assemblies: &mut self.assemblies, files, instances, context: assemblies::OWN }
    }
}

#[cfg(test)]
mod test_neighbours;
#[cfg(test)]
mod tests;
