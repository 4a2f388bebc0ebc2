//! The tables that all profiles of a request share.

use std::borrow::Cow;

use indexmap::IndexSet;
use prost::Message;

use super::messages::{
    AnyValue, DistinctLocation, Function, KeyValueAndUnit, Link, Location, Mapping, ProfilesDictionary,
    Stack, any_value,
};

/// The bytes of an index in pprof, with its tag, at most: indices of a profile's own tables may be longer than those of the
/// tables of a request.
const PPROF_INDEX_BYTES: usize = 5;

/// Tables whose first element is the zero value. Equal elements are one.
pub(super) struct Dictionary<'a> {
    strings: IndexSet<Cow<'a, str>>,
    /// The index of the key, and the value.
    attributes: IndexSet<(i32, Cow<'a, str>)>,
    mappings: IndexSet<Mapping>,
    functions: IndexSet<Function>,
    locations: IndexSet<DistinctLocation>,
    stacks: IndexSet<Stack>,
    size: Size,
}

/// Upper bounds of sizes, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// The encoded message.
    pub(super) otlp: usize,
    /// What Pyroscope makes of it in a profile of pprof, without mappings.
    pub(super) pprof: usize,
}

/// The lengths of the tables at one time.
pub(super) struct Checkpoint {
    strings: usize,
    attributes: usize,
    mappings: usize,
    functions: usize,
    locations: usize,
    stacks: usize,
    size: Size,
}

impl<'a> Dictionary<'a> {
    pub(super) fn new() -> Self {
        let mut dictionary = Self {
            strings: IndexSet::from([Cow::Borrowed("")]),
            attributes: IndexSet::from([(0, Cow::Borrowed(""))]),
            mappings: IndexSet::from([Mapping::default()]),
            functions: IndexSet::from([Function::default()]),
            locations: IndexSet::from([DistinctLocation::default()]),
            stacks: IndexSet::from([Stack::default()]),
            size: Size::default(),
        };
        dictionary.size.otlp = first_elements().encoded_len();
        dictionary
    }

    /// Upper bounds of the size of the tables.
    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// The index of a text.
    pub(super) fn string(&mut self, text: Cow<'a, str>) -> i32 {
        let bytes = field_bytes(text.len());
        let added = insert(&mut self.strings, text);
        self.count(added, Size { otlp: bytes, pprof: bytes })
    }

    /// The index of an attribute with a text as its value.
    pub(super) fn attribute(&mut self, key: &'static str, value: Cow<'a, str>) -> i32 {
        let key = self.string(Cow::Borrowed(key));
        let value_bytes = field_bytes(value.len());
        let otlp = field_bytes(attribute_message(key, &value).encoded_len());
        let added = insert(&mut self.attributes, (key, value));
        self.count(added, Size { otlp, pprof: value_bytes })
    }

    /// The index of a mapping.
    pub(super) fn mapping(&mut self, mapping: Mapping) -> i32 {
        let otlp = field_bytes(mapping.encoded_len());
        let added = insert(&mut self.mappings, mapping);
        self.count(added, Size { otlp, pprof: 0 })
    }

    /// The index of a function.
    pub(super) fn function(&mut self, function: Function) -> i32 {
        let otlp = field_bytes(function.encoded_len());
        let added = insert(&mut self.functions, function);
        self.count(added, Size { otlp, pprof: otlp + 3 * PPROF_INDEX_BYTES })
    }

    /// The index of a location.
    pub(super) fn location(&mut self, location: Location) -> i32 {
        let otlp = field_bytes(location.encoded_len());
        let pprof = otlp + (2 + location.lines.len()) * PPROF_INDEX_BYTES;
        let added = insert(&mut self.locations, DistinctLocation(location));
        self.count(added, Size { otlp, pprof })
    }

    /// The index of a stack.
    pub(super) fn stack(&mut self, stack: Stack) -> i32 {
        let otlp = field_bytes(stack.encoded_len());
        let added = insert(&mut self.stacks, stack);
        self.count(added, Size { otlp, pprof: 0 })
    }

    /// An upper bound of the bytes of a stack in a sample of pprof: the location ids, and a mapping for each of its mappings,
    /// because Pyroscope adds the mappings of each sample.
    pub(super) fn pprof_bytes_of_stack(&self, stack: i32) -> usize {
        /// Tag and length, five indices, the end of the address range, four flags.
        const MAPPING_BYTES: usize = 2 + 5 * PPROF_INDEX_BYTES + 11 + 8;
        let stack = usize::try_from(stack).ok().and_then(|index| self.stacks.get_index(index));
        let locations = stack.map_or(&[][..], |stack| &stack.location_indices);
        let location = |index: &i32| self.locations.get_index(usize::try_from(*index).ok()?);
        let mut mappings: Vec<_> =
            locations.iter().filter_map(location).map(|location| location.0.mapping_index).collect();
        mappings.sort_unstable();
        mappings.dedup();
        let ids = locations.len() * prost::length_delimiter_len(self.locations.len());
        field_bytes(ids) + mappings.len() * MAPPING_BYTES
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            strings: self.strings.len(),
            attributes: self.attributes.len(),
            mappings: self.mappings.len(),
            functions: self.functions.len(),
            locations: self.locations.len(),
            stacks: self.stacks.len(),
            size: self.size,
        }
    }

    /// Removes what was added since the checkpoint.
    pub(super) fn restore(&mut self, checkpoint: &Checkpoint) {
        self.strings.truncate(checkpoint.strings);
        self.attributes.truncate(checkpoint.attributes);
        self.mappings.truncate(checkpoint.mappings);
        self.functions.truncate(checkpoint.functions);
        self.locations.truncate(checkpoint.locations);
        self.stacks.truncate(checkpoint.stacks);
        self.size = checkpoint.size;
    }

    pub(super) fn into_message(self) -> ProfilesDictionary {
        let first_elements = first_elements();
        let attributes = self.attributes.iter().skip(1);
        let attributes = attributes.map(|(key, value)| attribute_message(*key, value));
        ProfilesDictionary {
            mapping_table: self.mappings.into_iter().collect(),
            location_table: self.locations.into_iter().map(|location| location.0).collect(),
            function_table: self.functions.into_iter().collect(),
            string_table: self.strings.into_iter().map(Cow::into_owned).collect(),
            attribute_table: first_elements.attribute_table.into_iter().chain(attributes).collect(),
            stack_table: self.stacks.into_iter().collect(),
            ..first_elements
        }
    }

    /// Counts the size of an element that is new, and returns its index.
    fn count(&mut self, (index, is_new): (i32, bool), size: Size) -> i32 {
        if is_new {
            self.size.otlp += size.otlp;
            self.size.pprof += size.pprof;
        }
        index
    }
}

/// The zero value of each table. Of the two zero values that the definition of `link_table` permits, Parca accepts the
/// empty one alone (`pkg/normalizer/otel.go`).
fn first_elements() -> ProfilesDictionary {
    ProfilesDictionary {
        mapping_table: vec![Mapping::default()],
        location_table: vec![Location::default()],
        function_table: vec![Function::default()],
        link_table: vec![Link::default()],
        string_table: vec![String::new()],
        attribute_table: vec![KeyValueAndUnit::default()],
        stack_table: vec![Stack::default()],
    }
}

/// The bytes of a field of variable length with a number below 16: tag, length and content.
pub(super) fn field_bytes(length: usize) -> usize {
    1 + prost::length_delimiter_len(length) + length
}

/// The index of an element, and whether it is new. The limit of a request's size bounds the index.
fn insert<T: std::hash::Hash + Eq>(table: &mut IndexSet<T>, element: T) -> (i32, bool) {
    let (index, is_new) = table.insert_full(element);
    (i32::try_from(index).unwrap_or(i32::MAX), is_new)
}

/// Backends read a value in the attribute itself, not yet one in the table of strings (`string_value_strindex`).
fn attribute_message(key_strindex: i32, value: &str) -> KeyValueAndUnit {
    let value = any_value::Value::StringValue(value.to_owned());
    KeyValueAndUnit { key_strindex, value: Some(AnyValue { value: Some(value) }), unit_strindex: 0 }
}
