//! The assemblies that the code of one image is named by.
//!
//! Most code of an image is of its own assembly. Where signatures speak of another one they give its number: 0 is the
//! image's own, then follow those that its metadata refers to, the image's manifest itself, and those that the manifest
//! refers to. A composite image has no metadata of its own but for the manifest, whose first assemblies are its
//! components.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`, "ManifestMetadata".

use profiler_binary_reader::{ByteRange, PagedImage, ParseError};
use std::{collections::HashMap, sync::Arc};

use super::{
    home::Home,
    metadata::{Metadata, Table},
};
use crate::pe::Pe;
use crate::readytorun::AssemblyFiles;
use crate::readytorun::NameError;

/// Assemblies that are opened for one image. The frameworks of .NET have two hundred.
const MAX_ASSEMBLIES: usize = 1024;

const MVID_BYTES: u64 = 16;

/// The number of the image's own assembly.
pub(super) const OWN: u32 = 0;

/// An assembly as names need it.
#[derive(Debug)]
struct Assembly {
    /// Its file, where its metadata is not in the image.
    file: Option<PagedImage>,
    metadata: Metadata,
    name: String,
}

/// What an assembly is asked for names.
pub(super) struct Known<'a> {
    pub(super) pieces: &'a mut PagedImage,
    pub(super) metadata: &'a Metadata,
    pub(super) name: &'a str,
}

/// All assemblies by number, opened when they are asked for.
#[derive(Debug)]
pub(super) struct Assemblies {
    home: Home,
    /// The number of the manifest itself: those of the assemblies that it refers to follow.
    manifest_number: u32,
    manifest: Option<Metadata>,
    /// What tells each build of the manifest's assemblies from others.
    mvids: ByteRange,
    /// The metadata of components, where it is in the image.
    embedded: Vec<ByteRange>,
    opened: HashMap<u32, Result<Assembly, NameError>>,
}

/// Where in an image its assemblies are described. What there is not is empty.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    /// The metadata of its own assembly.
    pub(super) own: ByteRange,
    pub(super) manifest: ByteRange,
    /// The manifest's number in an image without an assembly of its own.
    pub(super) manifest_number: u32,
    pub(super) mvids: ByteRange,
    pub(super) embedded: Vec<ByteRange>,
}

impl Assemblies {
    /// Reads the image's own metadata and its manifest.
    pub(super) fn read(pieces: &mut PagedImage, at: Descriptions, home: Home) -> Result<Self, ParseError> {
        let Descriptions { own, manifest, manifest_number, mvids, embedded } = at;
        let manifest = if manifest.len() == 0 { None } else { Some(Metadata::read(pieces, manifest)?) };
        let mut assemblies =
            Self { home, manifest_number, manifest, mvids, embedded, opened: HashMap::new() };
        if own.len() > 0 {
            let own = Assembly::within(pieces, own)?;
            assemblies.manifest_number = own.metadata.rows(Table::AssemblyRef).saturating_add(1);
            assemblies.opened.insert(OWN, Ok(own));
        }
        Ok(assemblies)
    }

    /// The assembly of a number; `pieces` are the image's.
    pub(super) fn get<'a>(
        &'a mut self,
        number: u32,
        pieces: &'a mut PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<Known<'a>, NameError> {
        if !self.opened.contains_key(&number) {
            if self.opened.len() >= MAX_ASSEMBLIES {
                return Err(NameError::ParseError(ParseError::TooLarge));
            }
            let opened = self.open(number, pieces, files);
            self.opened.insert(number, opened);
        }
        match self.opened.get_mut(&number) {
            Some(Ok(assembly)) => {
                let Assembly { file, metadata, name } = assembly;
                Ok(Known { pieces: file.as_mut().unwrap_or(pieces), metadata, name })
            }
            Some(Err(reason)) => Err(*reason),
            None => Err(NameError::ParseError(ParseError::Malformed)),
        }
    }

    fn open(
        &self,
        number: u32,
        pieces: &mut PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<Assembly, NameError> {
        let Some(row) = self.manifest_row(number) else {
            let own = self
                .opened
                .get(&OWN)
                .and_then(|own| own.as_ref().ok())
                .ok_or(NameError::ParseError(ParseError::Malformed))?;
            let name = own.metadata.reference(pieces, number)?;
            return self.open_file(&name, None, pieces, files);
        };
        let manifest = self.manifest.as_ref().ok_or(NameError::ParseError(ParseError::Malformed))?;
        if row == 0 {
            let name = manifest.assembly(pieces).unwrap_or_default();
            return Ok(Assembly { file: None, metadata: manifest.clone(), name });
        }
        let embedded = self.embedded.get(row as usize - 1).filter(|metadata| metadata.len() > 0);
        if let Some(metadata) = embedded {
            return Ok(Assembly::within(pieces, *metadata)?);
        }
        let name = manifest.reference(pieces, row)?;
        let mvid = self.mvid(row, pieces)?;
        self.open_file(&name, mvid, pieces, files)
    }

    /// The row of the manifest's table of references; 0 is the manifest itself. `None` is an assembly that the image's
    /// own metadata refers to.
    fn manifest_row(&self, number: u32) -> Option<u32> {
        number.checked_sub(self.manifest_number)
    }

    fn mvid(&self, row: u32, pieces: &mut PagedImage) -> Result<Option<[u8; 16]>, ParseError> {
        if self.mvids.len() == 0 {
            return Ok(None);
        }
        let mvid = pieces.read_array(self.mvids.skip(u64::from(row - 1) * MVID_BYTES)?)?;
        Ok(Some(mvid).filter(|mvid| *mvid != [0; 16]))
    }

    fn open_file(
        &self,
        name: &str,
        mvid: Option<[u8; 16]>,
        pieces: &PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<Assembly, NameError> {
        let image = self.home.open(name, files)?;
        let mut file = PagedImage::new(image, Arc::clone(pieces.budget()))?;
        let pe = Pe::read(&mut file)?;
        let metadata = Metadata::read(&mut file, pe.span(pe.metadata)?)?;
        if let Some(mvid) = mvid
            && metadata.mvid(&mut file)? != mvid
        {
            return Err(NameError::AssemblyReplaced);
        }
        let name = metadata.assembly(&mut file)?;
        Ok(Assembly { file: Some(file), metadata, name })
    }
}

impl Assembly {
    /// Whose metadata is in the image.
    fn within(pieces: &mut PagedImage, metadata: ByteRange) -> Result<Self, ParseError> {
        let metadata = Metadata::read(pieces, metadata)?;
        let name = metadata.assembly(pieces)?;
        Ok(Self { file: None, metadata, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(manifest_number: u32) -> Assemblies {
        Assemblies {
            home: Home::Folder("/".into()),
            manifest_number,
            manifest: None,
            mvids: ByteRange::default(),
            embedded: Vec::new(),
            opened: HashMap::new(),
        }
    }

    #[test]
    fn numbers_go_through_the_own_references_and_then_through_the_manifests() {
        let rows = |manifest| [0, 1, 2, 3, 4].map(|number| numbered(manifest).manifest_row(number));
        assert_eq!(rows(3), [None, None, None, Some(0), Some(1)], "two references of its own");
        assert_eq!(rows(1), [None, Some(0), Some(1), Some(2), Some(3)], "a composite image");
        assert_eq!(rows(0), [Some(0), Some(1), Some(2), Some(3), Some(4)], "an older one");
    }
}
