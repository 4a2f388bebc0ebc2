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

use profiler_binary_reader::{Image, PagedImage, ParseError, WorkBudget};
use std::{path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use thiserror::Error;

use self::{
    assemblies::Assemblies,
    names::Names,
    readytorun::{Place, ReadyToRun},
};
pub use self::{bundle::Bundle, home::Home};
use crate::{
    managed::{ManagedName, Tier},
    pe::Pe,
};

/// Why code of an image has no name.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The image has no precompiled code for this machine.
    #[error("the image has no precompiled code for this machine")]
    NotPrecompiled,
    /// No method has code at the address.
    #[error("no method has code at the address")]
    NoMethod,
    /// An assembly that the name refers to cannot be found.
    #[error("an assembly that the name refers to is missing")]
    AssemblyMissing,
    /// An assembly that the name refers to is of another build.
    #[error("an assembly that the name refers to is of another build")]
    AssemblyReplaced,
    /// The image, or an assembly that the name refers to, cannot be read.
    #[error("the image cannot be read")]
    ParseError(ParseError),
}

impl From<ParseError> for NameError {
    fn from(defect: ParseError) -> Self {
        Self::ParseError(defect)
    }
}

/// Opens the assemblies that the names of an image refer to.
pub trait AssemblyFiles {
    /// The file at `path` in the root of the process that maps the image; `None` where there is none.
    fn open(&self, path: &Path) -> Option<Image>;
}

/// A .NET image that is mapped into processes. Stays open, so that names survive the process and the file.
pub struct ReadyToRunModule {
    pieces: PagedImage,
    pe: Pe,
    home: Home,
    /// Read at the first look-up.
    code: Option<Result<PrecompiledCode, NameError>>,
}

struct PrecompiledCode {
    tables: ReadyToRun,
    assemblies: Assemblies,
}

impl ReadyToRunModule {
    /// Reads the headers. `budget` is that of all symbols and debug information.
    pub fn open(image: Image, home: Home, budget: &Arc<WorkBudget>) -> Result<Self, NameError> {
        let mut pieces = PagedImage::new(image, Arc::clone(budget))?;
        let pe = Pe::read(&mut pieces)?;
        Ok(Self { pieces, pe, home, code: None })
    }

    /// Whether it has the code of several assemblies.
    pub fn is_composite(&self) -> bool {
        self.pe.is_composite
    }

    /// The image's own address of code that runs at `address`, in a mapping of the file's bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        let address = self.pe.address(mapping_start, mapping_offset, address)?;
        Some(ElfAddress(address.into()))
    }

    /// The method at an address of the image. Where other assemblies name it, they are looked for in `files`.
    pub fn symbolize(
        &mut self,
        address: ElfAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<ManagedName<'static>, NameError> {
        let (pieces, home) = (&mut self.pieces, &self.home);
        let code = self.code.get_or_insert_with(|| PrecompiledCode::read(pieces, &self.pe, home.clone()));
        let code = code.as_mut().map_err(|reason| *reason)?;
        code.name(pieces, address, files)
    }
}

impl PrecompiledCode {
    fn read(pieces: &mut PagedImage, pe: &Pe, home: Home) -> Result<Self, NameError> {
        let (tables, descriptions) = ReadyToRun::read(pieces, pe)?.ok_or(NameError::NotPrecompiled)?;
        let assemblies = Assemblies::read(pieces, descriptions, home)?;
        Ok(Self { tables, assemblies })
    }

    fn name(
        &mut self,
        pieces: &mut PagedImage,
        address: ElfAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<ManagedName<'static>, NameError> {
        let address = u32::try_from(address.0).map_err(|_| NameError::NoMethod)?;
        match self.tables.find(pieces, address)?.ok_or(NameError::NoMethod)? {
            Place::Method(method) => {
                let name = self.names(pieces, files).method(method)?;
                Ok(ManagedName { name: name.into(), tier: Some(Tier::Precompiled) })
            }
            Place::DelayLoadThunk => Ok(ManagedName { name: "stub DelayLoadThunk".into(), tier: None }),
        }
    }

    fn names<'a>(&'a mut self, pieces: &'a mut PagedImage, files: &'a dyn AssemblyFiles) -> Names<'a> {
        let instances = self.tables.instances;
        Names { pieces, assemblies: &mut self.assemblies, files, instances, context: assemblies::OWN }
    }
}

#[cfg(test)]
mod test_neighbours;
#[cfg(test)]
mod tests;
