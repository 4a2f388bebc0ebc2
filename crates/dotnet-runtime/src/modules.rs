//! Finds the metadata of the runtime's modules in the memory of its process.
//!
//! Metadata is in the image of a file, in the layout of the file ("flat") or in that of the loader, or in a buffer for a module
//! that was emitted (`AssemblyBuilder`). Pages of it are cached from lookup to lookup: metadata of an image does not change. The
//! place and the version id of the module are checked in each lookup that uses it, because unloaded modules make room in memory
//! for others.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/Loader.md` and `EcmaMetadata.md`; ECMA-335 II.24.

use std::{collections::HashMap, sync::Arc};

use profiler_binary_reader::{Image, PagedImage, ParseError, ReadAt, WorkBudget};
use profiler_dotnet_symbols::{
    metadata::{Metadata, Table},
    pe::Pe,
};

use crate::{
    error::LookupError,
    layout::ModuleLayout,
    memory::{LimitedMemory, MemoryImage},
};

/// The largest metadata of a module. The largest library of .NET has 5 MB.
const MAX_METADATA_BYTES: u64 = 64 << 20;

/// The largest image whose headers are read.
const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// Modules that are remembered. Beyond, all are forgotten.
const MAX_MODULES: usize = 4_096;

/// Cached metadata of all modules. Beyond, all are forgotten.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// The longest path that is read.
const MAX_PATH_BYTES: usize = 4 << 10;

/// The modules of a runtime.
#[derive(Debug)]
pub(crate) struct Modules {
    memory: Arc<LimitedMemory>,
    layout: ModuleLayout,
    budget: Arc<WorkBudget>,
    indexes: HashMap<u64, u32>,
    opened: Vec<Module>,
    /// The number of the current lookup.
    lookup: u64,
}

/// A module with metadata.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) image: PagedImage,
    pub(crate) metadata: Metadata,
    /// The name of its assembly.
    pub(crate) name: String,
    pub(crate) file_name: String,
    source: MetadataSource,
    mvid: [u8; 16],
    mvid_address: u64,
    /// The lookup that checked last that the module is still the same.
    checked_in: u64,
}

/// Where a module has its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetadataSource {
    /// The address of an image.
    Image(u64),
    /// The address and the size of a buffer.
    Buffer { address: u64, bytes: u64 },
}

impl Modules {
    pub(crate) fn new(memory: &Arc<LimitedMemory>, layout: ModuleLayout, budget: &Arc<WorkBudget>) -> Self {
        Self {
            memory: Arc::clone(memory),
            layout,
            budget: Arc::clone(budget),
            indexes: HashMap::new(),
            opened: Vec::new(),
            lookup: 0,
        }
    }

    /// Begins a lookup. Indexes of earlier ones are no longer valid.
    pub(crate) fn begin(&mut self) {
        self.lookup += 1;
        if self.opened.len() > MAX_MODULES || self.cached_bytes() > MAX_CACHED_BYTES {
            self.indexes.clear();
            self.opened.clear();
        }
    }

    /// The number of bytes of metadata in memory.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.opened.iter().map(|module| module.image.cached_bytes()).sum()
    }

    /// The index of the module at an address, for [`get`](Self::get).
    pub(crate) fn index_of(&mut self, address: u64) -> Result<u32, LookupError> {
        if let Some(index) = self.indexes.get(&address).copied()
            && self.is_unchanged(address, index)?
        {
            return Ok(index);
        }
        let module = self.open(address)?;
        let index = u32::try_from(self.opened.len()).map_err(|_| LookupError::TooLarge("list of modules"))?;
        self.opened.push(module);
        self.indexes.insert(address, index);
        Ok(index)
    }

    /// The module of an index.
    pub(crate) fn get(&mut self, index: u32) -> Result<&mut Module, LookupError> {
        self.opened.get_mut(index as usize).ok_or(LookupError::Malformed("module"))
    }

    /// The path of the file of a module, whose metadata need not be readable.
    pub(crate) fn path(&self, address: u64) -> Option<String> {
        let path = self.memory.u64(address.wrapping_add(self.layout.path)).ok()?;
        self.memory.utf16_string(path, MAX_PATH_BYTES).ok().filter(|path| !path.is_empty())
    }

    fn is_unchanged(&mut self, address: u64, index: u32) -> Result<bool, LookupError> {
        let lookup = self.lookup;
        if self.get(index)?.checked_in == lookup {
            return Ok(true);
        }
        let source = self.source_of(address)?;
        let memory = Arc::clone(&self.memory);
        let module = self.get(index)?;
        let is_unchanged = module.source == source && memory.array(module.mvid_address) == Ok(module.mvid);
        module.checked_in = lookup;
        Ok(is_unchanged)
    }

    fn source_of(&self, module: u64) -> Result<MetadataSource, LookupError> {
        let field = |of: u64, offset: u64| self.memory.u64(of.wrapping_add(offset));
        let buffer = field(module, self.layout.dynamic_metadata)?;
        if buffer != 0 {
            let bytes = self.memory.u32(buffer.wrapping_add(self.layout.dynamic_size))?;
            let address = buffer.wrapping_add(self.layout.dynamic_data);
            return Ok(MetadataSource::Buffer { address, bytes: bytes.into() });
        }
        let base = field(module, self.layout.base)?;
        if base != 0 {
            return Ok(MetadataSource::Image(base));
        }
        let mut at = module;
        for offset in self.layout.image_layout.into_iter().flatten() {
            at = field(at, offset)?;
            if at == 0 {
                return Err(LookupError::Malformed("module without an image"));
            }
        }
        if at == module {
            Err(LookupError::Malformed("module without an image"))
        } else {
            Ok(MetadataSource::Image(at))
        }
    }

    fn open(&self, address: u64) -> Result<Module, LookupError> {
        let source = self.source_of(address)?;
        let (metadata_address, mut image, metadata) = match source {
            MetadataSource::Buffer { address, bytes } => {
                let (image, metadata) = self.read_metadata(address, bytes)?;
                (address, image, metadata)
            }
            MetadataSource::Image(base) => self.metadata_of_image(base)?,
        };
        let mvid_range = metadata.mvid_range(&mut image)?;
        let mvid = image.read_array(mvid_range)?;
        let file_name = match self.path(address) {
            Some(path) => path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned(),
            None => metadata.module_name(&mut image)?,
        };
        let name = if metadata.rows(Table::Assembly) > 0 {
            metadata.assembly_name(&mut image)?
        } else {
            metadata.module_name(&mut image)?
        };
        let mvid_address = metadata_address.wrapping_add(mvid_range.start);
        Ok(Module { image, metadata, name, file_name, source, mvid, mvid_address, checked_in: self.lookup })
    }

    /// Finds the metadata of an image, whose layout the runtime does not state: where the headers of one layout do not lead to
    /// metadata, it is in the other one.
    fn metadata_of_image(&self, base: u64) -> Result<(u64, PagedImage, Metadata), LookupError> {
        let mut result = Err(LookupError::Malformed("image"));
        for read in [Pe::read_loaded, Pe::read] {
            let mut headers = self.image_at(base, MAX_IMAGE_BYTES)?;
            let found = read(&mut headers).and_then(|pe| pe.span(pe.metadata)).map_err(LookupError::from);
            result = found.and_then(|range| {
                let address = base.wrapping_add(range.start);
                let (image, metadata) = self.read_metadata(address, range.len())?;
                Ok((address, image, metadata))
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn read_metadata(&self, address: u64, bytes: u64) -> Result<(PagedImage, Metadata), LookupError> {
        if bytes > MAX_METADATA_BYTES {
            return Err(LookupError::TooLarge("metadata"));
        }
        let mut image = self.image_at(address, bytes)?;
        let root = image.full_range();
        let metadata = Metadata::read(&mut image, root)?;
        Ok((image, metadata))
    }

    fn image_at(&self, base: u64, length: u64) -> Result<PagedImage, ParseError> {
        let reader: Arc<dyn ReadAt> = Arc::new(MemoryImage { memory: Arc::clone(&self.memory), base });
        PagedImage::new(Image::Reader { reader, start: 0, length }, Arc::clone(&self.budget))
    }
}
