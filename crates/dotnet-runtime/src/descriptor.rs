//! Reads the contract descriptor of a runtime: fields, globals and contracts of its data structures.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/contract-descriptor.md` and `data_descriptor.md` ("Physical JSON
//! descriptor", in the compact form that `src/coreclr/tools/cdac-build-tool` writes).

use std::{collections::HashMap, fmt};

use serde_json::{Map, Value};

use crate::{error::DescriptorError, memory::LimitedMemory};

/// The largest description. That of .NET 10 has 11 KB.
const MAX_JSON_BYTES: u32 = 1 << 20;

/// The most pointers. .NET 10 has 24.
const MAX_POINTERS: u32 = 4_096;

/// The name of the description that a complete one adds to.
const EMPTY_BASELINE: &str = "empty";

/// What a runtime says of its data structures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataDescriptor {
    contracts: HashMap<String, ContractVersion>,
    types: HashMap<String, TypeLayout>,
    globals: HashMap<String, u64>,
    texts: HashMap<String, String>,
    sub_descriptors: HashMap<String, u64>,
}

/// The version of a contract: a number, or from .NET 11 on a name such as `c1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContractVersion {
    /// Up to .NET 10.
    Number(u64),
    /// From .NET 11 on.
    Name(String),
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The size and the fields of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeLayout {
    size_bytes: Option<u64>,
    field_offsets: HashMap<String, u64>,
}

impl DataDescriptor {
    /// Reads the structure `DotNetRuntimeContractDescriptor` at `address`.
    pub(crate) fn read(memory: &LimitedMemory, address: u64) -> Result<Self, DescriptorError> {
        const HEADER_BYTES: usize = 40;
        const MAGIC: u64 = 0x0043_4144_4343_4e44;
        const IS_VALID: u32 = 1;
        const IS_32_BIT: u32 = 2;
        let header: [u8; HEADER_BYTES] = memory.array(address)?;
        let word = |at: usize| u32_at(&header, at);
        let pointer = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let flags = word(8);
        if pointer(0) != MAGIC || flags & IS_VALID == 0 {
            return Err(DescriptorError::NoDescriptor);
        }
        if flags & IS_32_BIT != 0 {
            return Err(DescriptorError::WordSize);
        }
        let (json_bytes, pointers) = (word(12), word(24));
        if json_bytes > MAX_JSON_BYTES {
            return Err(DescriptorError::TooLarge("more than 1 MiB of JSON"));
        }
        if pointers > MAX_POINTERS {
            return Err(DescriptorError::TooLarge("more than 4,096 pointers"));
        }
        let json = memory.bytes(pointer(16), json_bytes as usize)?;
        let pointers = match pointers {
            0 => Vec::new(),
            count => memory.bytes(pointer(32), count as usize * size_of::<u64>())?,
        };
        let pointers: Vec<u64> = pointers
            .chunks_exact(size_of::<u64>())
            .map(|bytes| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
            .collect();
        Self::parse(&json, &pointers)
    }

    /// Parses the JSON of a description. Globals refer to `pointers` by index.
    ///
    /// # Errors
    /// [`DescriptorError`] when it is no complete description.
    pub fn parse(json: &[u8], pointers: &[u64]) -> Result<Self, DescriptorError> {
        // The size includes the zero that ends the string.
        let end = json.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let value: Value = serde_json::from_slice(&json[..end])
            .map_err(|error| DescriptorError::Malformed(error.to_string()))?;
        let root = value.as_object().ok_or_else(|| malformed("no object"))?;
        check_baseline(root.get("baseline"))?;
        let mut descriptor = Self::default();
        for (name, version) in object(root, "contracts")? {
            descriptor.contracts.insert(name.clone(), contract_version(version)?);
        }
        for (name, layout) in object(root, "types")? {
            descriptor.types.insert(name.clone(), TypeLayout::parse(layout)?);
        }
        for (name, value) in object(root, "globals")? {
            if let Some(value) = global(value, pointers)? {
                descriptor.globals.insert(name.clone(), value);
            } else if let Some(text) = text(value) {
                descriptor.texts.insert(name.clone(), text.to_owned());
            }
        }
        for key in ["sub-descriptors", "subDescriptors"] {
            for (name, value) in object(root, key)? {
                let address = global(value, pointers)?.ok_or_else(|| malformed("sub-descriptor"))?;
                descriptor.sub_descriptors.insert(name.clone(), address);
            }
        }
        Ok(descriptor)
    }

    /// The version of a contract.
    pub fn contract(&self, name: &str) -> Option<&ContractVersion> {
        self.contracts.get(name)
    }

    /// The number of contracts.
    pub fn contracts(&self) -> usize {
        self.contracts.len()
    }

    /// The address of the pointer to another descriptor, for example that of the garbage collector (.NET 11).
    pub fn sub_descriptor(&self, name: &str) -> Option<u64> {
        self.sub_descriptors.get(name).copied()
    }

    /// The offset of a field.
    pub(crate) fn offset(&self, of: &str, field: &str) -> Result<u64, DescriptorError> {
        let offset = self.types.get(of).and_then(|layout| layout.field_offsets.get(field));
        offset.copied().ok_or_else(|| DescriptorError::Missing(format!("the field {of}.{field}")))
    }

    /// The size of a type, bytes.
    pub(crate) fn size_of(&self, of: &str) -> Result<u64, DescriptorError> {
        let size = self.types.get(of).and_then(|layout| layout.size_bytes);
        size.ok_or_else(|| DescriptorError::Missing(format!("the size of {of}")))
    }

    /// The value of a global variable; the address of one that is a pointer.
    pub(crate) fn global(&self, name: &str) -> Result<u64, DescriptorError> {
        let value = self.globals.get(name).copied();
        value.ok_or_else(|| DescriptorError::Missing(format!("the global {name}")))
    }

    /// The value of a global text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Adds what a runtime does not describe. What it does describe stays.
    pub(crate) fn add_type(&mut self, name: &str, size_bytes: Option<u64>, fields: &[(&str, u64)]) {
        let layout = self.types.entry(name.to_owned()).or_default();
        layout.size_bytes = layout.size_bytes.or(size_bytes);
        for (field, offset) in fields {
            layout.field_offsets.entry((*field).to_owned()).or_insert(*offset);
        }
    }

    /// Adds a global that a runtime does not describe.
    pub(crate) fn add_global(&mut self, name: &str, value: u64) {
        self.globals.entry(name.to_owned()).or_insert(value);
    }
}

impl TypeLayout {
    /// A type is an object: the key `!` has the size, each other key the offset of a field, or the offset with a type.
    fn parse(value: &Value) -> Result<Self, DescriptorError> {
        let fields = value.as_object().ok_or_else(|| malformed("type"))?;
        let mut layout = Self::default();
        for (name, value) in fields {
            let number = value.as_array().map_or(Some(value), |pair| pair.first());
            let number = number.and_then(integer).ok_or_else(|| malformed("field"))?;
            if name == "!" {
                layout.size_bytes = Some(number);
            } else {
                layout.field_offsets.insert(name.clone(), number);
            }
        }
        Ok(layout)
    }
}

/// The object of a key; empty where the key is missing.
fn object<'a>(
    root: &'a Map<String, Value>,
    key: &str,
) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, DescriptorError> {
    let found = match root.get(key) {
        None => None,
        Some(Value::Object(found)) => Some(found),
        Some(_) => return Err(malformed(key)),
    };
    Ok(found.into_iter().flatten())
}

fn check_baseline(baseline: Option<&Value>) -> Result<(), DescriptorError> {
    let names: Vec<_> = match baseline {
        None => Vec::new(),
        Some(Value::Array(names)) => names.iter().collect(),
        Some(name) => vec![name],
    };
    match names.into_iter().find(|name| name.as_str() != Some(EMPTY_BASELINE)) {
        None => Ok(()),
        Some(other) => {
            Err(DescriptorError::Baseline(other.as_str().map_or_else(|| other.to_string(), str::to_owned)))
        }
    }
}

fn contract_version(version: &Value) -> Result<ContractVersion, DescriptorError> {
    match version {
        Value::String(name) => Ok(ContractVersion::Name(name.clone())),
        Value::Number(number) => {
            number.as_u64().map(ContractVersion::Number).ok_or_else(|| malformed("contract version"))
        }
        _ => Err(malformed("contract version")),
    }
}

/// A global is a value, a value with a type, or in place of a value the index of a pointer in an array: `1`, `"0x1"`,
/// `["0x1", "uint8"]`, `[[7], "pointer"]`, `[7]`. `None` is a string.
fn global(value: &Value, pointers: &[u64]) -> Result<Option<u64>, DescriptorError> {
    let pointer = |index: &Value| {
        let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
        let pointer = index.and_then(|index| pointers.get(index)).copied();
        pointer.map(Some).ok_or_else(|| malformed("index of a pointer"))
    };
    let Value::Array(parts) = value else { return Ok(integer(value)) };
    match parts.as_slice() {
        [Value::Array(inner), Value::String(_)] => match inner.as_slice() {
            [index] => pointer(index),
            _ => Err(malformed("global")),
        },
        [value, Value::String(_)] => Ok(integer(value)),
        [index] => pointer(index),
        _ => Err(malformed("global")),
    }
}

/// A global that is a text: `"x64"`, `["x64", "string"]`.
fn text(value: &Value) -> Option<&str> {
    value.as_array().map_or(Some(value), |parts| parts.first()).and_then(Value::as_str)
}

/// A number, or a text with a decimal or hexadecimal one.
fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_i64().map(i64::cast_unsigned)),
        Value::String(text) => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok().or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned)),
        },
        _ => None,
    }
}

fn malformed(what: &str) -> DescriptorError {
    DescriptorError::Malformed(what.to_owned())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        memory::{ReadError, ReadLimits},
        test_memory::TestMemory,
    };

    fn parse(json: &str) -> Result<DataDescriptor, DescriptorError> {
        DataDescriptor::parse(json.as_bytes(), &[0x1000, 0x2000])
    }

    #[test]
    fn fields_sizes_and_globals_have_values_in_all_notations() {
        let found = parse(
            r#"{"version":0,"baseline":"empty",
                "types":{"Chunk":{"!":24,"Next":8,"Count":[17,"uint8"]},"Empty":{}},
                "globals":{"A":["0xc","uint8"],"B":[[1],"pointer"],"C":[0],"D":5,"E":"0x10","F":["x64","string"],"G":"-1"},
                "contracts":{"Loader":1,"Thread":"c1"}}"#,
        )
        .unwrap();
        assert_eq!(found.size_of("Chunk"), Ok(24));
        assert_eq!((found.offset("Chunk", "Next"), found.offset("Chunk", "Count")), (Ok(8), Ok(17)));
        let globals = ["A", "B", "C", "D", "E", "G"].map(|name| found.global(name).unwrap());
        assert_eq!(globals, [12, 0x2000, 0x1000, 5, 16, u64::MAX]);
        assert_eq!(found.contract("Loader"), Some(&ContractVersion::Number(1)));
        assert_eq!(found.contract("Thread"), Some(&ContractVersion::Name("c1".to_owned())));
        assert_eq!(found.contract("Other"), None);
        assert_eq!((found.text("F"), found.text("D")), (Some("x64"), None));
        for missing in [found.offset("Chunk", "Size"), found.size_of("Empty"), found.global("F")] {
            assert!(matches!(missing, Err(DescriptorError::Missing(_))), "{missing:?}");
        }
    }

    #[test]
    fn sub_descriptors_have_an_address() {
        for key in ["sub-descriptors", "subDescriptors"] {
            let found =
                parse(&format!(r#"{{"baseline":"empty","{key}":{{"GC":[[0],"pointer"]}}}}"#)).unwrap();
            assert_eq!(found.sub_descriptor("GC"), Some(0x1000));
        }
    }

    #[test]
    fn an_incomplete_description_is_an_error() {
        assert_eq!(parse(r#"{"baseline":"net9"}"#), Err(DescriptorError::Baseline("net9".to_owned())));
        assert_eq!(parse(r#"{"baseline":["empty","x"]}"#), Err(DescriptorError::Baseline("x".to_owned())));
        assert_eq!(parse(r#"{"baseline":7}"#), Err(DescriptorError::Baseline("7".to_owned())));
        assert!(parse(r#"{"baseline":["empty"]}"#).is_ok());
        for json in [
            "",
            "[]",
            "{",
            r#"{"types":[]}"#,
            r#"{"types":{"A":7}}"#,
            r#"{"types":{"A":{"B":"unknown"}}}"#,
            r#"{"globals":{"A":[[2],"pointer"]}}"#,
            r#"{"globals":{"A":[[0,1],"pointer"]}}"#,
            r#"{"globals":{"A":[1,2,3]}}"#,
            r#"{"contracts":{"A":-1}}"#,
            r#"{"contracts":{"A":null}}"#,
        ] {
            assert!(matches!(parse(json), Err(DescriptorError::Malformed(_))), "{json}");
        }
    }

    #[test]
    fn deeply_nested_json_is_malformed() {
        let json = format!(r#"{{"globals":{{"A":{}}}}}"#, "[".repeat(100_000));
        assert!(matches!(parse(&json), Err(DescriptorError::Malformed(_))));
    }

    fn header(magic: &[u8; 8], words: [u32; 2], json: u64, pointers: u32) -> Vec<u8> {
        let mut bytes = magic.to_vec();
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(json.to_le_bytes());
        bytes.extend(pointers.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(0x3000_u64.to_le_bytes());
        bytes
    }

    fn read(header: &[u8]) -> Result<DataDescriptor, DescriptorError> {
        let mut memory = TestMemory::default();
        memory.write(0x1000, header);
        memory.write(0x2000, br#"{"globals":{"A":[0]}}"#);
        memory.write(0x3000, &0x1234_u64.to_le_bytes());
        let limits = ReadLimits::default();
        DataDescriptor::read(&LimitedMemory::new(Arc::new(memory), limits), 0x1000)
    }

    #[test]
    fn the_header_has_the_place_of_the_json_and_of_the_pointers() {
        let found = read(&header(b"DNCCDAC\0", [1, 22], 0x2000, 1)).unwrap();
        assert_eq!(found.global("A"), Ok(0x1234));
    }

    #[test]
    fn a_header_of_another_kind_or_size_is_an_error() {
        for (header, error) in [
            (header(b"DNCCDAC1", [1, 22], 0x2000, 1), DescriptorError::NoDescriptor),
            (header(b"DNCCDAC\0", [0, 22], 0x2000, 1), DescriptorError::NoDescriptor),
            (header(b"DNCCDAC\0", [3, 22], 0x2000, 1), DescriptorError::WordSize),
            (
                header(b"DNCCDAC\0", [1, (1 << 20) + 1], 0x2000, 1),
                DescriptorError::TooLarge("more than 1 MiB of JSON"),
            ),
            (
                header(b"DNCCDAC\0", [1, 22], 0x2000, 4_097),
                DescriptorError::TooLarge("more than 4,096 pointers"),
            ),
            (header(b"DNCCDAC\0", [1, 22], 0x9000, 1), DescriptorError::Read(ReadError::NotMapped)),
            (header(b"DNCCDAC\0", [1, 22], 1 << 47, 1), DescriptorError::Read(ReadError::NotMapped)),
        ] {
            assert_eq!(read(&header), Err(error));
        }
    }
}
