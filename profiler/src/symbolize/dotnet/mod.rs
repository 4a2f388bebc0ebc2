//! Names of precompiled .NET code (ReadyToRun), from the image alone.
//!
//! ```text
//! address in a mapping ─ pe ─> address in the image ─ readytorun, entry_points ─> method ─ names ─> name
//!                                    │ native_format: its tables                    │ metadata: rows and strings
//!                                    └────────────────────── pieces: of the file what is asked for
//! ```

mod entry_points;
mod metadata;
mod names;
mod native_format;
mod readytorun;
mod signature;

use std::sync::Arc;

use self::{
    metadata::Metadata,
    names::Names,
    readytorun::{Place, ReadyToRun},
};
use super::{
    budget::Budget,
    managed::{ManagedName, Tier},
    symbol::Symbolized,
};
pub(super) use crate::pe::is_pe;
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
    /// Read at the first look-up.
    code: Option<Result<PrecompiledCode, Reason>>,
}

struct PrecompiledCode {
    tables: ReadyToRun,
    metadata: Metadata,
    assembly: String,
}

impl ReadyToRunModule {
    /// Reads the headers. `budget` is that of all symbols and debug information.
    pub(crate) fn open(image: Image, budget: &Arc<Budget>) -> Result<Self, Reason> {
        let mut pieces = Pieces::new(image, Arc::clone(budget))?;
        let pe = Pe::read(&mut pieces)?;
        Ok(Self { pieces, pe, code: None })
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

    /// The method at an address of the image.
    pub(crate) fn symbolize(&mut self, address: ElfAddress) -> Result<Symbolized, Reason> {
        let pieces = &mut self.pieces;
        let code = self.code.get_or_insert_with(|| PrecompiledCode::read(pieces, &self.pe));
        let code = code.as_ref().map_err(|reason| *reason)?;
        Ok(Symbolized::managed(SymbolSource::ReadyToRun, code.name(pieces, address)?))
    }
}

impl PrecompiledCode {
    fn read(pieces: &mut Pieces, pe: &Pe) -> Result<Self, Reason> {
        let tables = ReadyToRun::read(pieces, pe)?.ok_or(Reason::NoSymbols)?;
        let metadata = Metadata::read(pieces, pe.span(pe.metadata)?)?;
        let assembly = metadata.assembly(pieces)?;
        Ok(Self { tables, metadata, assembly })
    }

    fn name(&self, pieces: &mut Pieces, address: ElfAddress) -> Result<ManagedName<'static>, Reason> {
        let address = u32::try_from(address.0).map_err(|_| Reason::NoSymbolHere)?;
        let method = match self.tables.find(pieces, address)?.ok_or(Reason::NoSymbolHere)? {
            Place::Method(method) => method,
            Place::DelayLoadThunk => {
                return Ok(ManagedName { name: "stub DelayLoadThunk".into(), tier: None });
            }
        };
        let (metadata, instances) = (&self.metadata, self.tables.instances);
        let name = Names { pieces, metadata, instances, assembly: &self.assembly }.method(method)?;
        Ok(ManagedName { name: name.into(), tier: Some(Tier::Precompiled) })
    }
}

#[cfg(test)]
mod tests;
