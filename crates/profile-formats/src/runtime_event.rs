//! The fields of runtime events, with text of the target escaped.

use std::borrow::Cow;

use indexmap::{IndexMap, map::Entry};

use crate::label;
use profiler_profile::{FieldValue, Profile, RuntimeEvent};

/// The fields of an event by name. Of fields with equal names, only the first one is there, as in
/// [`RuntimeEvent::field`].
pub(crate) fn fields<'a>(profile: &'a Profile, event: &RuntimeEvent) -> IndexMap<Cow<'a, str>, FieldValue> {
    let mut fields = IndexMap::with_capacity(event.fields.len());
    for field in &event.fields {
        if let Entry::Vacant(new) = fields.entry(label::escaped(profile.string(field.name))) {
            new.insert(field.value);
        }
    }
    fields
}

/// A value as text.
pub(crate) fn value_text(profile: &Profile, value: FieldValue) -> Cow<'_, str> {
    match value {
        FieldValue::Unsigned(number) => number.to_string().into(),
        FieldValue::Signed(number) => number.to_string().into(),
        FieldValue::Real(number) => number.to_string().into(),
        FieldValue::Text(text) => label::escaped(profile.string(text)),
    }
}
