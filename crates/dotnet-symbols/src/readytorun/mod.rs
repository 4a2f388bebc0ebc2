//! Names the methods of precompiled .NET code (ReadyToRun) from the image alone, without a runtime.
//!
//! ```text
//! runtime address
//!   | pe: sections                               (bundle: the image in a single-file program)
//! address of the image
//!   | method_tables, entry_points, native_format
//! method: row of the metadata, or instance signature
//!   | method_namer: type_spelling             (assemblies, assembly_location: other assemblies)
//! name
//! ```

mod assemblies;
mod assembly_location;
mod bundle;
mod entry_points;
mod helper_cells;
#[cfg(feature = "testing")]
mod inspection;
mod method_namer;
mod method_tables;
mod native_format;

use std::{ops::Range, path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileMapping, RuntimeAddress};
use profiler_binary_reader::{Image, PagedImage, ParseError, WorkBudget};
use thiserror::Error;

use self::{
    assemblies::{Assemblies, OWN_ASSEMBLY},
    method_namer::MethodNamer,
    method_tables::{CodeOwner, MethodTables},
};
pub use self::{
    assembly_location::AssemblyLocation,
    bundle::{Assembly, Bundle},
    helper_cells::{AllocationCell, Helper, HelperCell, RuntimeCells},
};
use crate::{
    managed::{ManagedName, Tier},
    pe::Pe,
};

/// Why an address of an image has no name.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The image has no precompiled code for this machine.
    #[error("the image has no precompiled code for this machine")]
    NotPrecompiled,
    /// No method has code at the address.
    #[error("no method has code at the address")]
    NoMethod,
    /// An assembly that the name refers to was not found.
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
    fn from(error: ParseError) -> Self {
        Self::ParseError(error)
    }
}

/// Opens the assemblies that the names of an image refer to.
pub trait AssemblyFiles {
    /// Opens the file at `path` in the root of the process that maps the image. `None` is a file that does not exist.
    fn open(&self, path: &Path) -> Option<Image>;

    /// Is called with the image from [`open`](Self::open) when it was found to be the assembly that a name refers to.
    fn accepted(&self, path: &Path, image: &Image) {
        let _ = (path, image);
    }
}

/// A .NET image. It stays open, so that its names are available after the process and the file are gone.
pub struct ReadyToRunModule {
    image: PagedImage,
    pe: Pe,
    location: AssemblyLocation,
    /// Read by the first lookup.
    code: Option<Result<PrecompiledCode, NameError>>,
}

struct PrecompiledCode {
    tables: MethodTables,
    assemblies: Assemblies,
}

impl ReadyToRunModule {
    /// Reads the headers. `location` is where the assemblies next to the image are. `budget` limits the work of reading
    /// this image and the assemblies that it refers to.
    ///
    /// # Errors
    /// [`NameError::ParseError`] when the headers are malformed.
    pub fn open(
        image: Image,
        location: AssemblyLocation,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, NameError> {
        let mut image = PagedImage::new(image, Arc::clone(budget))?;
        let pe = Pe::read(&mut image)?;
        Ok(Self { image, pe, location, code: None })
    }

    /// As [`open`](Self::open), for an image in the memory of a process, where each section is at its address.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_loaded(
        image: Image,
        location: AssemblyLocation,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, NameError> {
        let mut image = PagedImage::new(image, Arc::clone(budget))?;
        let pe = Pe::read_loaded(&mut image)?;
        Ok(Self { image, pe, location, code: None })
    }

    /// Whether the image has the code of several assemblies.
    pub fn is_composite(&self) -> bool {
        self.pe.is_composite
    }

    /// Converts the runtime address of code in a mapping of the file to an address of the image. `None` is an address
    /// outside of the code sections.
    pub fn address(&self, mapping: FileMapping, address: RuntimeAddress) -> Option<ElfAddress> {
        let address = self.pe.address(mapping, address)?;
        Some(ElfAddress(address.into()))
    }

    /// Returns the normalized name of the method at an address of the image. `files` opens other assemblies that the name
    /// refers to.
    ///
    /// # Errors
    /// [`NameError`], which tells why the address has no name.
    pub fn symbolize(
        &mut self,
        address: ElfAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<ManagedName<'static>, NameError> {
        let (code, image) = self.code()?;
        code.symbolize(image, address, files)
    }

    /// The addresses of the function at an address of the image: a method, a part of one, or one of its exception handlers.
    ///
    /// # Errors
    /// [`NameError`] when no function is at the address, or the image cannot be read.
    pub fn function_range(&mut self, address: ElfAddress) -> Result<Range<ElfAddress>, NameError> {
        let (code, image) = self.code()?;
        let address = u32::try_from(address.0).map_err(|_| NameError::NoMethod)?;
        let (start, end) = code.tables.function_containing(image, address)?.ok_or(NameError::NoMethod)?;
        Ok(ElfAddress(start.into())..ElfAddress(end.into()))
    }

    /// The number of bytes of the image that are in memory.
    pub fn cached_bytes(&self) -> usize {
        self.image.cached_bytes()
    }

    /// Reads where the runtime puts the addresses of its helpers and allocators; empty for an image without precompiled code
    /// for this machine.
    ///
    /// # Errors
    /// [`ParseError`] when the headers or the import sections are malformed.
    pub fn runtime_cells(&mut self) -> Result<RuntimeCells, ParseError> {
        helper_cells::read(&mut self.image, &self.pe)
    }

    /// The tables of the code, which the first call reads, and the image.
    fn code(&mut self) -> Result<(&mut PrecompiledCode, &mut PagedImage), NameError> {
        let (image, location) = (&mut self.image, &self.location);
        let code = self.code.get_or_insert_with(|| PrecompiledCode::read(image, &self.pe, location.clone()));
        Ok((code.as_mut().map_err(|error| *error)?, image))
    }
}

impl PrecompiledCode {
    fn read(image: &mut PagedImage, pe: &Pe, location: AssemblyLocation) -> Result<Self, NameError> {
        let (tables, metadata) = MethodTables::read(image, pe)?.ok_or(NameError::NotPrecompiled)?;
        let assemblies = Assemblies::read(image, metadata, location)?;
        Ok(Self { tables, assemblies })
    }

    fn symbolize(
        &mut self,
        image: &mut PagedImage,
        address: ElfAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<ManagedName<'static>, NameError> {
        let address = u32::try_from(address.0).map_err(|_| NameError::NoMethod)?;
        match self.tables.find(image, address)?.ok_or(NameError::NoMethod)? {
            CodeOwner::Method(method) => {
                let name = self.namer(image, files).name(method)?;
                Ok(ManagedName { name: name.into(), tier: Some(Tier::Precompiled) })
            }
            CodeOwner::DelayLoadThunk => Ok(ManagedName { name: "stub DelayLoadThunk".into(), tier: None }),
        }
    }

    fn namer<'a>(&'a mut self, image: &'a mut PagedImage, files: &'a dyn AssemblyFiles) -> MethodNamer<'a> {
        let assemblies = &mut self.assemblies;
        MethodNamer { image, assemblies, files, instances: self.tables.instances, context: OWN_ASSEMBLY }
    }
}

#[cfg(test)]
mod tests;
