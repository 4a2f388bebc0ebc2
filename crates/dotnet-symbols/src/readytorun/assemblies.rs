//! Opens the assemblies whose metadata has the names for the code of an image.
//!
//! Most code of an image belongs to its own assembly. Signatures refer to other assemblies by index: 0 is the image's own
//! assembly, then follow the assembly references of its metadata, the manifest itself, and the assembly references of
//! the manifest. A composite image has no metadata but the manifest, whose first references are the components.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`, "ManifestMetadata".

use std::{collections::HashMap, sync::Arc};

use profiler_binary_reader::{ByteRange, PagedImage, ParseError};

use super::{AssemblyFiles, NameError, assembly_location::AssemblyLocation};
use crate::{
    metadata::{Metadata, Table},
    pe::Pe,
};

/// Assemblies that are opened for one image. The .NET frameworks have two hundred.
const MAX_ASSEMBLIES: usize = 1024;

const MVID_BYTES: u64 = 16;

/// The index of the image's own assembly.
pub(super) const OWN_ASSEMBLY: u32 = 0;

/// An assembly with its metadata.
#[derive(Debug)]
struct Assembly {
    /// Its file. `None` when the image has its metadata.
    file: Option<PagedImage>,
    metadata: Metadata,
    name: String,
}

/// An assembly, and the file that has its metadata.
pub(super) struct OpenAssembly<'a> {
    pub(super) image: &'a mut PagedImage,
    pub(super) metadata: &'a Metadata,
    pub(super) name: &'a str,
}

/// All assemblies by index, opened on demand.
#[derive(Debug)]
pub(super) struct Assemblies {
    location: AssemblyLocation,
    /// The index of the manifest itself. Those of its assembly references follow.
    manifest_index: u32,
    manifest: Option<Metadata>,
    /// The module version ids of the manifest's assembly references.
    mvids: ByteRange,
    /// The metadata of each component; empty where it is in the component's own file.
    embedded: Vec<ByteRange>,
    opened: HashMap<u32, Result<Assembly, NameError>>,
}

/// Where an image has the metadata of its assemblies. Ranges are empty where the image has none.
#[derive(Debug, Default)]
pub(super) struct MetadataRanges {
    /// The metadata of the image's own assembly.
    pub(super) own: ByteRange,
    pub(super) manifest: ByteRange,
    /// The index of the manifest in an image without an assembly of its own.
    pub(super) manifest_index: u32,
    pub(super) mvids: ByteRange,
    pub(super) embedded: Vec<ByteRange>,
}

impl Assemblies {
    /// Reads the image's own metadata and its manifest.
    pub(super) fn read(
        image: &mut PagedImage,
        ranges: MetadataRanges,
        location: AssemblyLocation,
    ) -> Result<Self, ParseError> {
        let MetadataRanges { own, manifest, manifest_index, mvids, embedded } = ranges;
        let manifest = if manifest.is_empty() { None } else { Some(Metadata::read(image, manifest)?) };
        let mut assemblies =
            Self { location, manifest_index, manifest, mvids, embedded, opened: HashMap::new() };
        if !own.is_empty() {
            let own = Assembly::embedded(image, own)?;
            assemblies.manifest_index = own.metadata.rows(Table::AssemblyRef).saturating_add(1);
            assemblies.opened.insert(OWN_ASSEMBLY, Ok(own));
        }
        Ok(assemblies)
    }

    /// The assembly of an index. `image` is the image itself.
    pub(super) fn get<'a>(
        &'a mut self,
        index: u32,
        image: &'a mut PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<OpenAssembly<'a>, NameError> {
        if !self.opened.contains_key(&index) {
            if self.opened.len() >= MAX_ASSEMBLIES {
                return Err(NameError::ParseError(ParseError::TooLarge));
            }
            let opened = self.open(index, image, files);
            self.opened.insert(index, opened);
        }
        match self.opened.get_mut(&index) {
            Some(Ok(assembly)) => {
                let Assembly { file, metadata, name } = assembly;
                Ok(OpenAssembly { image: file.as_mut().unwrap_or(image), metadata, name })
            }
            Some(Err(reason)) => Err(*reason),
            None => Err(NameError::ParseError(ParseError::Malformed)),
        }
    }

    fn open(
        &self,
        index: u32,
        image: &mut PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<Assembly, NameError> {
        let Some(row) = self.manifest_row(index) else {
            let own = self
                .opened
                .get(&OWN_ASSEMBLY)
                .and_then(|own| own.as_ref().ok())
                .ok_or(NameError::ParseError(ParseError::Malformed))?;
            let name = own.metadata.referenced_assembly_name(image, index)?;
            return self.open_file(&name, None, image, files);
        };
        let manifest = self.manifest.as_ref().ok_or(NameError::ParseError(ParseError::Malformed))?;
        if row == 0 {
            let name = manifest.assembly_name(image).unwrap_or_default();
            return Ok(Assembly { file: None, metadata: manifest.clone(), name });
        }
        let embedded = self.embedded.get(row as usize - 1).filter(|metadata| !metadata.is_empty());
        if let Some(metadata) = embedded {
            return Ok(Assembly::embedded(image, *metadata)?);
        }
        let name = manifest.referenced_assembly_name(image, row)?;
        let mvid = self.mvid(row, image)?;
        self.open_file(&name, mvid, image, files)
    }

    /// The row of the manifest's table `AssemblyRef`; 0 is the manifest itself. `None` is an assembly reference of the
    /// image's own metadata.
    fn manifest_row(&self, index: u32) -> Option<u32> {
        index.checked_sub(self.manifest_index)
    }

    fn mvid(&self, row: u32, image: &mut PagedImage) -> Result<Option<[u8; 16]>, ParseError> {
        if self.mvids.is_empty() {
            return Ok(None);
        }
        let mvid = image.read_array(self.mvids.skip(u64::from(row - 1) * MVID_BYTES)?)?;
        Ok(Some(mvid).filter(|mvid| *mvid != [0; 16]))
    }

    fn open_file(
        &self,
        name: &str,
        mvid: Option<[u8; 16]>,
        image: &PagedImage,
        files: &dyn AssemblyFiles,
    ) -> Result<Assembly, NameError> {
        let (opened, path) = self.location.open(name, files)?;
        let mut file = PagedImage::new(opened, Arc::clone(image.budget()))?;
        let pe = Pe::read(&mut file)?;
        let metadata = Metadata::read(&mut file, pe.span(pe.metadata)?)?;
        if let Some(mvid) = mvid
            && metadata.mvid(&mut file)? != mvid
        {
            return Err(NameError::AssemblyReplaced);
        }
        let found = metadata.assembly_name(&mut file)?;
        if let Some(path) = path.filter(|_| found.eq_ignore_ascii_case(name)) {
            files.accepted(&path, file.image());
        }
        Ok(Assembly { file: Some(file), metadata, name: found })
    }
}

impl Assembly {
    /// Reads an assembly whose metadata is in the image.
    fn embedded(image: &mut PagedImage, metadata: ByteRange) -> Result<Self, ParseError> {
        let metadata = Metadata::read(image, metadata)?;
        let name = metadata.assembly_name(image)?;
        Ok(Self { file: None, metadata, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_manifest_index(manifest_index: u32) -> Assemblies {
        Assemblies {
            location: AssemblyLocation::Folder("/".into()),
            manifest_index,
            manifest: None,
            mvids: ByteRange::default(),
            embedded: Vec::new(),
            opened: HashMap::new(),
        }
    }

    #[test]
    fn assembly_indexes_count_own_references_first_and_those_of_the_manifest_after_them() {
        let rows = |manifest| [0, 1, 2, 3, 4].map(|index| with_manifest_index(manifest).manifest_row(index));
        assert_eq!(rows(3), [None, None, None, Some(0), Some(1)], "two references of its own");
        assert_eq!(rows(1), [None, Some(0), Some(1), Some(2), Some(3)], "a composite image");
        assert_eq!(rows(0), [Some(0), Some(1), Some(2), Some(3), Some(4)], "an older one");
    }
}
