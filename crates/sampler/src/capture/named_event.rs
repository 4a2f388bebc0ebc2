//! A counted event as a capture names it.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::counted_event::{CountedEvent, UnknownEvent};

/// What the profile of an event depends on. Its condition is left out: the occurrences of a capture are those that meet it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NamedEvent {
    name: String,
    period: NonZeroU64,
    weight: Option<String>,
}

impl From<CountedEvent> for NamedEvent {
    fn from(event: CountedEvent) -> Self {
        let weight = event.weight().map(str::to_owned);
        Self { name: event.name().to_owned(), period: event.period(), weight }
    }
}

impl TryFrom<NamedEvent> for CountedEvent {
    type Error = UnknownEvent;

    fn try_from(NamedEvent { name, period, weight }: NamedEvent) -> Result<Self, UnknownEvent> {
        let event = name.parse::<Self>()?.every(period);
        Ok(weight.iter().fold(event, |event, field| event.weighted_by(field)))
    }
}
