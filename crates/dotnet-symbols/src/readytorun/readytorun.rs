//! The tables of precompiled .NET code in an image: which functions there are, and which methods they belong to.
//!
//! Source: dotnet/runtime, `docs/design/coreclr/botr/readytorun-format.md`.

use super::{
    assemblies::{Descriptions, OWN},
    entry_points::EntryPoints,
};
use crate::pe::{
    Directory, Pe,
    precompiled::{Header, RUNTIME_FUNCTIONS, Tables},
};
use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

/// The largest table of the runtime's largest library has half a megabyte.
const MAX_TABLE_BYTES: u64 = 32 << 20;

/// Components of a composite image. The frameworks of .NET have two hundred.
const MAX_COMPONENTS: u64 = 1024;

/// Types in the signatures of all instances. The largest library of the runtime has a hundredth.
const MAX_TYPES: u32 = 8 << 20;

/// What each of them takes off the budget for reading.
const TYPE_COST_BYTES: u64 = 16;

const COMPONENT_BYTES: u64 = 16;

/// Begin and end of a function and where its unwind information is; AArch64 has no end.
const HAS_END: bool = cfg!(not(target_arch = "aarch64"));
const FUNCTION_BYTES: u64 = if HAS_END { 12 } else { 8 };

const METHOD_ENTRY_POINTS: u32 = 103;
const DELAY_LOAD_THUNKS: u32 = 106;
const INSTANCE_ENTRY_POINTS: u32 = 109;
const MANIFEST_METADATA: u32 = 112;
const COMPONENT_ASSEMBLIES: u32 = 115;
const MANIFEST_MVIDS: u32 = 118;
const HOT_COLD_MAP: u32 = 120;

/// What code an address of an image belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Method(Method),
    /// Code that finds the target of a call when it is first made.
    DelayLoadThunk,
}

/// A method, by what names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// By its assembly's number and its row of the table of methods there.
    Definition { assembly: u16, row: u32 },
    /// By the offset of its signature in the table of instances.
    Instance(u32),
}

/// The precompiled code of an image.
#[derive(Debug)]
pub(super) struct ReadyToRun {
    functions: ByteRange,
    thunks: Directory,
    pub(super) instances: ByteRange,
    entry_points: EntryPoints,
    /// The first function of each cold part with that of the hot part it belongs to.
    cold_parts: Vec<(u32, u32)>,
}

impl ReadyToRun {
    /// Reads the tables, and where the image's assemblies are described, if it has precompiled code for this machine.
    pub(super) fn read(pieces: &mut PagedImage, pe: &Pe) -> Result<Option<(Self, Descriptions)>, ParseError> {
        if pe.native_header.len() == 0 || !pe.is_of_this_machine {
            return Ok(None);
        }
        let Some(header) = Header::read(pieces, pe.native_header)? else { return Ok(None) };
        let components = read_components(&header.tables, pieces, pe)?;
        let is_composite = header.tables.directory(COMPONENT_ASSEMBLIES).is_some();
        let descriptions = Descriptions {
            own: if is_composite { ByteRange::default() } else { pe.span(pe.metadata)? },
            manifest: header.tables.span(MANIFEST_METADATA, pe)?,
            manifest_number: manifest_number(&header),
            mvids: header.tables.span(MANIFEST_MVIDS, pe)?,
            embedded: components.iter().map(|component| component.metadata).collect(),
        };
        let cold_parts = pieces.read_uncached(header.tables.span(HOT_COLD_MAP, pe)?, MAX_TABLE_BYTES)?;
        let tables = Self {
            functions: header.tables.span(RUNTIME_FUNCTIONS, pe)?,
            thunks: header.tables.directory(DELAY_LOAD_THUNKS).unwrap_or_default(),
            instances: header.tables.span(INSTANCE_ENTRY_POINTS, pe)?,
            entry_points: read_entry_points(pieces, pe, &header, &components)?,
            cold_parts: read_cold_parts(&cold_parts),
        };
        Ok(Some((tables, descriptions)))
    }

    #[cfg(test)]
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> {
        self.entry_points.methods()
    }

    #[cfg(test)]
    pub(super) fn function_starts(&self, pieces: &mut PagedImage) -> Vec<u32> {
        let functions = 0..(self.functions.len() / FUNCTION_BYTES) as u32;
        let start = |function| self.function(pieces, function).unwrap().0;
        functions.map(start).collect()
    }

    /// What the code at an address of the image belongs to.
    pub(super) fn find(&self, pieces: &mut PagedImage, address: u32) -> Result<Option<Place>, ParseError> {
        if self.thunks.contains(address) {
            return Ok(Some(Place::DelayLoadThunk));
        }
        let Some(function) = self.function_at(pieces, address)? else { return Ok(None) };
        Ok(self.entry_points.method_of(self.hot_function(function)).map(Place::Method))
    }

    /// The number of the function at an address: the functions are in the order of their addresses.
    fn function_at(&self, pieces: &mut PagedImage, address: u32) -> Result<Option<u32>, ParseError> {
        let (mut from, mut to) = (0, (self.functions.len() / FUNCTION_BYTES) as u32);
        while from < to {
            let middle = from.midpoint(to);
            let (start, _) = self.function(pieces, middle)?;
            if start <= address { from = middle + 1 } else { to = middle }
        }
        let Some(function) = from.checked_sub(1) else { return Ok(None) };
        let (_, end) = self.function(pieces, function)?;
        Ok((address < end).then_some(function))
    }

    fn function(&self, pieces: &mut PagedImage, function: u32) -> Result<(u32, u32), ParseError> {
        let place = self.functions.skip(u64::from(function) * FUNCTION_BYTES)?;
        let [start, end]: [[u8; 4]; 2] = split(pieces.read_array(place)?);
        let end = if HAS_END { u32::from_le_bytes(end) } else { u32::MAX };
        Ok((u32::from_le_bytes(start), end))
    }

    /// The hot part's function, for one of a cold part.
    fn hot_function(&self, function: u32) -> u32 {
        let above = self.cold_parts.partition_point(|(cold, _)| *cold <= function);
        above.checked_sub(1).and_then(|at| self.cold_parts.get(at)).map_or(function, |(_, hot)| *hot)
    }
}

fn split(bytes: [u8; 8]) -> [[u8; 4]; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [[a, b, c, d], [e, f, g, h]]
}

/// A component of a composite image.
struct Component {
    methods: ByteRange,
    /// Empty where the component's own file has it.
    metadata: ByteRange,
}

impl Component {
    fn read(pieces: &mut PagedImage, pe: &Pe, entry: ByteRange) -> Result<Self, ParseError> {
        let entry: [u8; COMPONENT_BYTES as usize] = pieces.read_array(entry)?;
        let mut fields = ByteCursor::new(&entry, 0);
        let (managed, core) = (Directory::read(&mut fields)?, Directory::read(&mut fields)?);
        let metadata = if managed == Directory::default() {
            ByteRange::default()
        } else {
            pe.metadata_of(pieces, managed)?
        };
        // An assembly without code of its own has no header.
        if core == Directory::default() {
            return Ok(Self { methods: ByteRange::default(), metadata });
        }
        let tables = Tables::read(pieces, pe.span(core)?)?;
        Ok(Self { methods: tables.span(METHOD_ENTRY_POINTS, pe)?, metadata })
    }
}

/// The number of a composite image's manifest, which the numbers of its components follow.
fn manifest_number(header: &Header) -> u32 {
    const FIRST_WITH_ONE_OF_ITS_OWN: (u16, u16) = (6, 3);
    u32::from(header.version >= FIRST_WITH_ONE_OF_ITS_OWN)
}

fn read_components(tables: &Tables, pieces: &mut PagedImage, pe: &Pe) -> Result<Vec<Component>, ParseError> {
    let table = tables.span(COMPONENT_ASSEMBLIES, pe)?;
    let count = table.len() / COMPONENT_BYTES;
    if count > MAX_COMPONENTS {
        return Err(ParseError::TooLarge);
    }
    (0..count).map(|index| Component::read(pieces, pe, table.skip(index * COMPONENT_BYTES)?)).collect()
}

fn read_entry_points(
    pieces: &mut PagedImage,
    pe: &Pe,
    header: &Header,
    components: &[Component],
) -> Result<EntryPoints, ParseError> {
    let own = [(OWN, header.tables.span(METHOD_ENTRY_POINTS, pe)?)];
    let of_components =
        (manifest_number(header) + 1..).zip(components.iter().map(|component| component.methods));
    let mut entry_points = EntryPoints::default();
    for (assembly, table) in own.into_iter().chain(of_components) {
        let table = pieces.read_uncached(table, MAX_TABLE_BYTES)?;
        let assembly = u16::try_from(assembly).map_err(|_| ParseError::TooLarge)?;
        pieces.budget().read_symbols(|left| entry_points.add_definitions(assembly, &table, left))?;
    }
    let instances = pieces.read_uncached(header.tables.span(INSTANCE_ENTRY_POINTS, pe)?, MAX_TABLE_BYTES)?;
    let mut types_left = MAX_TYPES;
    pieces.budget().read_symbols(|left| entry_points.add_instances(&instances, left, &mut types_left))?;
    pieces.spend(u64::from(MAX_TYPES - types_left) * TYPE_COST_BYTES)?;
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
    fn functions_of_a_cold_part_are_the_hot_parts_methods() {
        let cold_parts = read_cold_parts(&[8, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0xff]);
        assert_eq!(cold_parts, [(6, 1), (8, 3)]);
        let code = ReadyToRun {
            functions: ByteRange::default(),
            thunks: Directory::default(),
            instances: ByteRange::default(),
            entry_points: EntryPoints::default(),
            cold_parts,
        };
        let hot: Vec<_> = [0, 5, 6, 7, 8, 9].map(|function| code.hot_function(function)).into();
        assert_eq!(hot, [0, 5, 1, 1, 3, 3]);
    }
}
