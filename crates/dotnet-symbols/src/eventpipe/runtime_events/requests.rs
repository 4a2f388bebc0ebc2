//! Decodes the events about HTTP requests: those that Kestrel serves (dotnet/aspnetcore, `KestrelEventSource`), and those that
//! `HttpClient` sends (dotnet/runtime, `HttpTelemetry`, .NET 5 and later).

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use profiler_profile::RuntimeEventKind;

use super::{Phase, RuntimeEvent};
use crate::eventpipe::{
    fields::{Field, FieldName, Value},
    nettrace::Event,
};

/// The provider of the requests that ASP.NET Core serves.
pub const SERVER_PROVIDER: &str = "Microsoft-AspNetCore-Server-Kestrel";

/// The provider of the requests that `HttpClient` sends.
pub const CLIENT_PROVIDER: &str = "System.Net.Http";

/// The fields that are kept of the requests of both providers. A connection is named by the id of the request.
const KEPT_FIELDS: [&str; 9] =
    ["method", "path", "httpVersion", "requestId", "scheme", "host", "port", PATH_AND_QUERY, "statusCode"];

/// The field with a path and a query. The query is left out: it can have a secret.
const PATH_AND_QUERY: &str = "pathAndQuery";

/// Makes a request of an event of these providers about the begin or the end of one. Other events stay as they are.
pub(super) fn with_request(decoded: RuntimeEvent, event: &Event<'_>) -> RuntimeEvent {
    let phase = match event.kind.name.as_str() {
        "RequestStart" => Phase::Begin,
        "RequestStop" => Phase::End,
        _ => return decoded,
    };
    let pair = match event.kind.provider.as_str() {
        SERVER_PROVIDER => server_pair(&decoded.fields),
        CLIENT_PROVIDER => activity_pair(event.activity),
        _ => None,
    };
    let Some(pair) = pair else { return decoded };
    let fields = decoded.fields.into_iter().filter_map(kept).collect();
    RuntimeEvent { kind: RuntimeEventKind::Request, phase, pair, fields, ..decoded }
}

/// The connection, and the request where a connection can have several at a time: from HTTP/2 on, and where the version is not
/// known (before .NET 5). A program can change the id of a request while it serves it.
fn server_pair(fields: &[Field]) -> Option<(u64, u64)> {
    let connection = text(fields, "connectionId")?;
    let has_one_request = text(fields, "httpVersion").is_some_and(|version| version.starts_with("HTTP/1"));
    let request = if has_one_request { "" } else { text(fields, "requestId")? };
    Some((hash(connection), hash(request)))
}

/// The halves of the id. Without an activity, the end of a request does not say which one ends.
fn activity_pair(activity: u128) -> Option<(u64, u64)> {
    (activity != 0).then_some((activity as u64, (activity >> u64::BITS) as u64))
}

/// A field of a request as it is kept.
fn kept(field: Field) -> Option<Field> {
    if !KEPT_FIELDS.contains(&&*field.name) {
        return None;
    }
    if field.name != PATH_AND_QUERY {
        return Some(field);
    }
    let Value::Text(path_and_query) = field.value else { return None };
    let path = path_and_query.split(['?', '#']).next().unwrap_or_default().to_owned();
    Some(Field { name: FieldName::Borrowed("path"), value: Value::Text(Cow::Owned(path)) })
}

fn text<'a>(fields: &'a [Field], name: &str) -> Option<&'a str> {
    match &fields.iter().find(|field| field.name == name)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::{
        nettrace::{EventKind, FieldDefinition, FieldType},
        testing,
    };

    fn decode(
        provider: &str,
        name: &str,
        activity: u128,
        fields: &[(&str, FieldType)],
        payload: &[u8],
    ) -> RuntimeEvent {
        let definition = |(name, field_type): &(&str, FieldType)| FieldDefinition {
            name: (*name).into(),
            field_type: *field_type,
        };
        let kind = EventKind {
            provider: provider.to_owned(),
            id: 3,
            name: name.to_owned(),
            fields: fields.iter().map(definition).collect(),
        };
        let event = Event { kind: &kind, thread: 7, ticks: 5, activity, payload, stack: &[] };
        RuntimeEvent::decode(&event).unwrap().unwrap()
    }

    /// An event of Kestrel with these texts.
    fn served(name: &str, texts: &[(&str, &str)]) -> RuntimeEvent {
        let fields: Vec<_> = texts.iter().map(|(name, _)| (*name, FieldType::Text)).collect();
        let payload: Vec<u8> = texts.iter().flat_map(|(_, text)| testing::text(text)).collect();
        decode(SERVER_PROVIDER, name, 0, &fields, &payload)
    }

    fn request_on<'a>(connection: &'a str, id: &'a str, version: &'a str) -> [(&'a str, &'a str); 5] {
        [
            ("connectionId", connection),
            ("requestId", id),
            ("httpVersion", version),
            ("path", "/orders"),
            ("method", "GET"),
        ]
    }

    fn described(event: &RuntimeEvent) -> Vec<(&str, Value)> {
        event.fields.iter().map(|field| (&*field.name, field.value.clone())).collect()
    }

    fn owned(text: &str) -> Value {
        Value::Text(text.to_owned().into())
    }

    #[test]
    fn a_served_request_has_its_method_and_its_path() {
        let begin = served("RequestStart", &request_on("C", "C:1", "HTTP/1.1"));
        assert_eq!((begin.kind, begin.phase), (RuntimeEventKind::Request, Phase::Begin));
        assert_eq!(begin.name, "Microsoft-AspNetCore-Server-Kestrel/RequestStart");
        let expected =
            [("requestId", "C:1"), ("httpVersion", "HTTP/1.1"), ("path", "/orders"), ("method", "GET")];
        assert_eq!(described(&begin), expected.map(|(name, text)| (name, owned(text))));
    }

    #[test]
    fn a_served_request_ends_on_its_connection() {
        let pair = |name, connection, id, version| served(name, &request_on(connection, id, version)).pair;
        let end = served("RequestStop", &request_on("C", "C:1", "HTTP/1.1"));
        assert_eq!((end.kind, end.phase), (RuntimeEventKind::Request, Phase::End));
        assert_eq!(end.pair, pair("RequestStart", "C", "changed by the program", "HTTP/1.1"));
        assert_ne!(end.pair, pair("RequestStart", "D", "C:1", "HTTP/1.1"));
        let end = pair("RequestStop", "C", "C:1", "HTTP/2");
        assert_eq!(end, pair("RequestStart", "C", "C:1", "HTTP/2"));
        assert_ne!(end, pair("RequestStart", "C", "C:2", "HTTP/2"));
        // .NET Core 3.1 has the ids alone.
        let old = |name, id| served(name, &[("connectionId", "C"), ("requestId", id)]);
        assert_eq!(old("RequestStart", "C:1").pair, old("RequestStop", "C:1").pair);
        assert_ne!(old("RequestStart", "C:1").pair, old("RequestStop", "C:2").pair);
    }

    #[test]
    fn a_sent_request_has_its_path_without_the_query_and_ends_with_its_activity() {
        let texts = ["https", "shop.example", "/cart?key=secret"].map(testing::text);
        let payload = [&texts[0][..], &texts[1], &443_u32.to_le_bytes(), &texts[2]].concat();
        let fields = [
            ("scheme", FieldType::Text),
            ("host", FieldType::Text),
            ("port", FieldType::I32),
            ("pathAndQuery", FieldType::Text),
        ];
        let activity = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;
        let begin = decode(CLIENT_PROVIDER, "RequestStart", activity, &fields, &payload);
        assert_eq!((begin.kind, begin.phase), (RuntimeEventKind::Request, Phase::Begin));
        let expected = [
            ("scheme", owned("https")),
            ("host", owned("shop.example")),
            ("port", Value::Signed(443)),
            ("path", owned("/cart")),
        ];
        assert_eq!(described(&begin), expected);
        let status = [("statusCode", FieldType::I32)];
        let end = decode(CLIENT_PROVIDER, "RequestStop", activity, &status, &200_u32.to_le_bytes());
        assert_eq!((end.phase, end.pair), (Phase::End, begin.pair));
        assert_eq!(described(&end), [("statusCode", Value::Signed(200))]);
        assert_ne!(decode(CLIENT_PROVIDER, "RequestStop", activity ^ 1, &[], &[]).pair, begin.pair);
        assert_ne!(decode(CLIENT_PROVIDER, "RequestStop", activity ^ (1 << 64), &[], &[]).pair, begin.pair);
    }

    #[test]
    fn what_cannot_be_paired_is_an_event_of_another_provider() {
        let other = [
            decode(CLIENT_PROVIDER, "RequestStart", 0, &[], &[]),
            decode(CLIENT_PROVIDER, "RequestHeadersStart", 1, &[], &[]),
            decode("My-Provider", "RequestStart", 1, &[], &[]),
            served("RequestStart", &[("requestId", "C:1")]),
            served("RequestStop", &[("connectionId", "C")]),
            served("ConnectionStart", &[("connectionId", "C")]),
        ];
        for event in other {
            assert_eq!((event.kind, event.phase), (RuntimeEventKind::Other, Phase::Whole), "{event:?}");
        }
    }
}
