//! Reads the ReadyToRun sections of an image, and finds the method at an address.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`.

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

use super::{
    assemblies::{MetadataRanges, OWN_ASSEMBLY},
    entry_points::EntryPoints,
};
use crate::pe::{
    Directory, Pe,
    precompiled::{RUNTIME_FUNCTIONS, ReadyToRunHeader, SectionTable},
};

/// Size of the largest section that is read. The largest library of the runtime has one of half a megabyte.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// Components of a composite image. The .NET frameworks have two hundred.
const MAX_COMPONENTS: u64 = 1024;

/// Types in all instance signatures of an image. The largest library of the runtime has a hundredth.
const MAX_INSTANCE_TYPES: u32 = 8 << 20;

/// What each of these types costs of the budget for reading.
const TYPE_COST_BYTES: u64 = 16;

const COMPONENT_BYTES: u64 = 16;

/// An entry of `RUNTIME_FUNCTIONS` has the start of a function, its end (not on AArch64), and its unwind information.
const HAS_END: bool = cfg!(not(target_arch = "aarch64"));
const FUNCTION_BYTES: u64 = if HAS_END { 12 } else { 8 };

/// Section types (`READYTORUN_SECTION`).
const METHOD_ENTRY_POINTS: u32 = 103;
const DELAY_LOAD_THUNKS: u32 = 106;
const INSTANCE_ENTRY_POINTS: u32 = 109;
const MANIFEST_METADATA: u32 = 112;
const COMPONENT_ASSEMBLIES: u32 = 115;
const MANIFEST_MVIDS: u32 = 118;
const HOT_COLD_MAP: u32 = 120;

/// What the code at an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeOwner {
    Method(MethodKey),
    /// A stub that resolves the target of a call when the call is first made.
    DelayLoadThunk,
}

/// Identifies a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MethodKey {
    /// By the index of its assembly and its row in the table `MethodDef`.
    Definition { assembly: u16, row: u32 },
    /// By the offset of its signature in the section of instance entry points.
    Instance(u32),
}

/// The functions and methods of an image.
#[derive(Debug)]
pub(super) struct MethodTables {
    functions: ByteRange,
    thunks: Directory,
    pub(super) instances: ByteRange,
    entry_points: EntryPoints,
    /// The first function of each cold part, with the first function of its hot part.
    cold_parts: Vec<(u32, u32)>,
}

impl MethodTables {
    /// Reads the tables, and where the metadata of the image's assemblies is. `None` is an image without precompiled code
    /// for this machine.
    pub(super) fn read(
        image: &mut PagedImage,
        pe: &Pe,
    ) -> Result<Option<(Self, MetadataRanges)>, ParseError> {
        if pe.native_header.is_empty() || !pe.is_of_this_machine {
            return Ok(None);
        }
        let Some(header) = ReadyToRunHeader::read(image, pe.native_header)? else { return Ok(None) };
        let components = read_components(&header.sections, image, pe)?;
        let is_composite = header.sections.directory(COMPONENT_ASSEMBLIES).is_some();
        let metadata = MetadataRanges {
            own: if is_composite { ByteRange::default() } else { pe.span(pe.metadata)? },
            manifest: header.sections.span(MANIFEST_METADATA, pe)?,
            manifest_index: manifest_index(&header),
            mvids: header.sections.span(MANIFEST_MVIDS, pe)?,
            embedded: components.iter().map(|component| component.metadata).collect(),
        };
        let cold_parts = image.read_uncached(header.sections.span(HOT_COLD_MAP, pe)?, MAX_SECTION_BYTES)?;
        let tables = Self {
            functions: header.sections.span(RUNTIME_FUNCTIONS, pe)?,
            thunks: header.sections.directory(DELAY_LOAD_THUNKS).unwrap_or_default(),
            instances: header.sections.span(INSTANCE_ENTRY_POINTS, pe)?,
            entry_points: read_entry_points(image, pe, &header, &components)?,
            cold_parts: read_cold_parts(&cold_parts),
        };
        Ok(Some((tables, metadata)))
    }

    #[cfg(feature = "testing")]
    pub(super) fn methods(&self) -> impl Iterator<Item = MethodKey> {
        self.entry_points.methods()
    }

    #[cfg(feature = "testing")]
    pub(super) fn function_starts(&self, image: &mut PagedImage) -> Result<Vec<u32>, ParseError> {
        let functions = 0..(self.functions.len() / FUNCTION_BYTES) as u32;
        functions.map(|function| Ok(self.function_range(image, function)?.0)).collect()
    }

    /// Finds the method or thunk at an address of the image.
    pub(super) fn find(&self, image: &mut PagedImage, address: u32) -> Result<Option<CodeOwner>, ParseError> {
        if self.thunks.contains(address) {
            return Ok(Some(CodeOwner::DelayLoadThunk));
        }
        let Some(function) = self.function_at(image, address)? else { return Ok(None) };
        Ok(self.entry_points.method_of(self.hot_function(function)).map(CodeOwner::Method))
    }

    /// The first address of the function at an address, and the address after its last one.
    pub(super) fn function_containing(
        &self,
        image: &mut PagedImage,
        address: u32,
    ) -> Result<Option<(u32, u32)>, ParseError> {
        let function = self.function_at(image, address)?;
        function.map(|function| self.function_range(image, function)).transpose()
    }

    /// The index of the function at an address. The functions are sorted by address.
    fn function_at(&self, image: &mut PagedImage, address: u32) -> Result<Option<u32>, ParseError> {
        let (mut from, mut to) = (0, (self.functions.len() / FUNCTION_BYTES) as u32);
        while from < to {
            let middle = from.midpoint(to);
            let (start, _) = self.function_range(image, middle)?;
            if start <= address { from = middle + 1 } else { to = middle }
        }
        let Some(function) = from.checked_sub(1) else { return Ok(None) };
        let (_, end) = self.function_range(image, function)?;
        Ok((address < end).then_some(function))
    }

    /// The first address of a function, and the address after its last one.
    fn function_range(&self, image: &mut PagedImage, function: u32) -> Result<(u32, u32), ParseError> {
        let entry = self.functions.skip(u64::from(function) * FUNCTION_BYTES)?;
        let [start, end]: [[u8; 4]; 2] = split(image.read_array(entry)?);
        let end = if HAS_END { u32::from_le_bytes(end) } else { u32::MAX };
        Ok((u32::from_le_bytes(start), end))
    }

    /// The function of the hot part, for a function of a cold part. Other functions are returned unchanged.
    fn hot_function(&self, function: u32) -> u32 {
        let after = self.cold_parts.partition_point(|(cold, _)| *cold <= function);
        after.checked_sub(1).and_then(|at| self.cold_parts.get(at)).map_or(function, |(_, hot)| *hot)
    }
}

fn split(bytes: [u8; 8]) -> [[u8; 4]; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [[a, b, c, d], [e, f, g, h]]
}

/// A component of a composite image.
struct Component {
    methods: ByteRange,
    /// Empty when the component's own file has it.
    metadata: ByteRange,
}

impl Component {
    fn read(image: &mut PagedImage, pe: &Pe, entry: ByteRange) -> Result<Self, ParseError> {
        let entry: [u8; COMPONENT_BYTES as usize] = image.read_array(entry)?;
        let mut fields = ByteCursor::new(&entry, 0);
        let (managed, core) = (Directory::read(&mut fields)?, Directory::read(&mut fields)?);
        let metadata = if managed == Directory::default() {
            ByteRange::default()
        } else {
            pe.metadata_range(image, managed)?
        };
        // A component without code has no header.
        if core == Directory::default() {
            return Ok(Self { methods: ByteRange::default(), metadata });
        }
        let sections = SectionTable::read(image, pe.span(core)?)?;
        Ok(Self { methods: sections.span(METHOD_ENTRY_POINTS, pe)?, metadata })
    }
}

/// The assembly index of a composite image's manifest. Those of its components follow.
fn manifest_index(header: &ReadyToRunHeader) -> u32 {
    const FIRST_VERSION_WITH_OWN_INDEX: (u16, u16) = (6, 3);
    u32::from(header.version >= FIRST_VERSION_WITH_OWN_INDEX)
}

fn read_components(
    sections: &SectionTable,
    image: &mut PagedImage,
    pe: &Pe,
) -> Result<Vec<Component>, ParseError> {
    let table = sections.span(COMPONENT_ASSEMBLIES, pe)?;
    let count = table.len() / COMPONENT_BYTES;
    if count > MAX_COMPONENTS {
        return Err(ParseError::TooLarge);
    }
    (0..count).map(|index| Component::read(image, pe, table.skip(index * COMPONENT_BYTES)?)).collect()
}

fn read_entry_points(
    image: &mut PagedImage,
    pe: &Pe,
    header: &ReadyToRunHeader,
    components: &[Component],
) -> Result<EntryPoints, ParseError> {
    let own = [(OWN_ASSEMBLY, header.sections.span(METHOD_ENTRY_POINTS, pe)?)];
    let component_tables =
        (manifest_index(header) + 1..).zip(components.iter().map(|component| component.methods));
    let mut entry_points = EntryPoints::default();
    for (assembly, table) in own.into_iter().chain(component_tables) {
        let table = image.read_uncached(table, MAX_SECTION_BYTES)?;
        let assembly = u16::try_from(assembly).map_err(|_| ParseError::TooLarge)?;
        image.budget().read_symbols(|left| entry_points.add_definitions(assembly, &table, left))?;
    }
    let instances =
        image.read_uncached(header.sections.span(INSTANCE_ENTRY_POINTS, pe)?, MAX_SECTION_BYTES)?;
    let mut types_left = MAX_INSTANCE_TYPES;
    image.budget().read_symbols(|left| entry_points.add_instances(&instances, left, &mut types_left))?;
    image.spend(u64::from(MAX_INSTANCE_TYPES - types_left) * TYPE_COST_BYTES)?;
    entry_points.sort();
    Ok(entry_points)
}

fn read_cold_parts(bytes: &[u8]) -> Vec<(u32, u32)> {
    let pairs = bytes.as_chunks::<8>().0.iter().map(|pair| {
        let [cold, hot] = split(*pair);
        (u32::from_le_bytes(cold), u32::from_le_bytes(hot))
    });
    let mut parts: Vec<_> = pairs.collect();
    parts.sort_unstable();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_cold_part_belong_to_the_method_of_the_hot_part() {
        let cold_parts = read_cold_parts(&[8, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0xff]);
        assert_eq!(cold_parts, [(6, 1), (8, 3)]);
        let tables = MethodTables {
            functions: ByteRange::default(),
            thunks: Directory::default(),
            instances: ByteRange::default(),
            entry_points: EntryPoints::default(),
            cold_parts,
        };
        let hot: Vec<_> = [0, 5, 6, 7, 8, 9].map(|function| tables.hot_function(function)).into();
        assert_eq!(hot, [0, 5, 1, 1, 3, 3]);
    }
}
