//! The environment variables of OpenTelemetry that an exporter and its resources have.
//!
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/> ("Configuration Options", "Specifying headers via environment
//! variables"), <https://opentelemetry.io/docs/specs/otel/resource/sdk/> ("Specifying resource information via an
//! environment variable") and <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>. A variable
//! of the signal, `OTEL_EXPORTER_OTLP_PROFILES_*`, wins over that of all signals. An empty variable is not set.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;

/// The path of the signal below the URL of all signals (OTLP specification, "OTLP/HTTP Request").
pub const PROFILES_PATH: &str = "v1development/profiles";

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable} {problem}")]
pub struct EnvironmentError {
    variable: String,
    problem: String,
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `http/protobuf`
    Http,
    /// `grpc`
    Grpc,
}

/// What the variables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT`: the URL of requests as it is.
    pub profiles_endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: the URL of all signals.
    pub endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub protocol: Option<Protocol>,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: names and values.
    pub headers: Vec<(String, String)>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`: the longest time of a request.
    pub timeout: Option<Duration>,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`: the certificates of trusted authorities, PEM.
    pub certificate: Option<PathBuf>,
    /// `OTEL_RESOURCE_ATTRIBUTES`, with `OTEL_SERVICE_NAME` as `service.name`.
    pub attributes: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the variables, each by its name.
    ///
    /// # Errors
    /// A variable with a value that the specification does not have.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let exporter = |suffix: &str| {
            let names = ["OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_EXPORTER_OTLP_"]
                .map(|prefix| format!("{prefix}{suffix}"));
            names.into_iter().find_map(|name| set(&name).map(|value| (name, value)))
        };
        let mut attributes = match set("OTEL_RESOURCE_ATTRIBUTES") {
            Some(value) => pairs("OTEL_RESOURCE_ATTRIBUTES", &value)?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        if let Some(name) = set("OTEL_SERVICE_NAME") {
            let name = name.trim();
            if name.contains(char::is_control) {
                return Err(error("OTEL_SERVICE_NAME", "has a control character".to_owned()));
            }
            attributes.insert("service.name".to_owned(), name.to_owned());
        }
        Ok(Self {
            profiles_endpoint: set("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT"),
            endpoint: set("OTEL_EXPORTER_OTLP_ENDPOINT"),
            protocol: exporter("PROTOCOL").map(|(name, value)| protocol(&name, &value)).transpose()?,
            headers: match exporter("HEADERS") {
                Some((name, value)) => pairs(&name, &value)?,
                None => Vec::new(),
            },
            timeout: exporter("TIMEOUT").map(|(name, value)| milliseconds(&name, &value)).transpose()?,
            certificate: exporter("CERTIFICATE").map(|(_, path)| path.into()),
            attributes,
        })
    }

    /// The URL of requests: that of the signal as it is; else that of all signals, with the path of the signal for HTTP.
    #[must_use]
    pub fn url(&self, protocol: Protocol) -> Option<String> {
        let of_all_signals = || {
            let base = self.endpoint.as_deref()?;
            match protocol {
                Protocol::Grpc => Some(base.to_owned()),
                Protocol::Http => Some(format!("{}/{PROFILES_PATH}", base.trim_end_matches('/'))),
            }
        };
        self.profiles_endpoint.clone().or_else(of_all_signals)
    }
}

fn protocol(variable: &str, value: &str) -> Result<Protocol, EnvironmentError> {
    match value.trim() {
        "grpc" => Ok(Protocol::Grpc),
        "http/protobuf" => Ok(Protocol::Http),
        other => Err(error(variable, format!("is `{other}`: only grpc and http/protobuf are supported"))),
    }
}

fn milliseconds(variable: &str, value: &str) -> Result<Duration, EnvironmentError> {
    match value.trim().parse() {
        Ok(number) if number > 0 => Ok(Duration::from_millis(number)),
        _ => Err(error(variable, format!("is `{value}`, which is not a number of milliseconds"))),
    }
}

/// The pairs of `a=1,b=2`: a W3C Baggage without properties, whose values are percent-encoded UTF-8
/// (<https://www.w3.org/TR/baggage/>, "Header Content").
fn pairs(variable: &str, value: &str) -> Result<Vec<(String, String)>, EnvironmentError> {
    let members = value.split(',').map(str::trim).filter(|member| !member.is_empty());
    members.map(|member| pair(variable, member)).collect()
}

fn pair(variable: &str, member: &str) -> Result<(String, String), EnvironmentError> {
    let (name, value) = member.split_once('=').unwrap_or(("", member));
    let name = name.trim();
    if name.is_empty() {
        return Err(error(variable, "has a part without `NAME=`: separate pairs by commas".to_owned()));
    }
    // The value may be a secret: an error does not repeat it.
    let value = percent_decode_str(value.trim()).decode_utf8();
    let value = value.map_err(|_| error(variable, format!("has a value of `{name}` that is not UTF-8")))?;
    if value.contains(char::is_control) {
        return Err(error(variable, format!("has a value of `{name}` with a control character")));
    }
    Ok((name.to_owned(), value.into_owned()))
}

fn error(variable: &str, problem: String) -> EnvironmentError {
    EnvironmentError { variable: variable.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        Environment::read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_nothing_is_set() {
        assert_eq!(read(&[]), Ok(Environment::default()));
        let empty = [("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_TIMEOUT", " ")];
        assert_eq!(read(&empty), Ok(Environment::default()));
    }

    #[test]
    fn the_path_of_the_signal_follows_the_url_of_all_signals() {
        for base in ["http://a:4318", "http://a:4318/"] {
            let environment = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", base)]).unwrap();
            let url = environment.url(Protocol::Http);
            assert_eq!(url.as_deref(), Some("http://a:4318/v1development/profiles"));
            assert_eq!(environment.url(Protocol::Grpc).as_deref(), Some(base));
        }
        let below = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a/otlp")]).unwrap();
        assert_eq!(below.url(Protocol::Http).as_deref(), Some("https://a/otlp/v1development/profiles"));
    }

    #[test]
    fn variables_of_the_signal_win() {
        let environment = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://b/api/x/v1/profiles"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10000"),
            ("OTEL_EXPORTER_OTLP_PROFILES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "b=2"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/a.pem"),
        ])
        .unwrap();
        assert_eq!(environment.url(Protocol::Http).as_deref(), Some("http://b/api/x/v1/profiles"));
        assert_eq!(environment.timeout, Some(Duration::from_millis(2_500)));
        assert_eq!(environment.headers, [("b".to_owned(), "2".to_owned())]);
        assert_eq!(environment.protocol, Some(Protocol::Grpc));
        assert_eq!(environment.certificate, Some("/a.pem".into()));
    }

    #[test]
    fn values_are_percent_decoded_and_may_contain_equals_signs() {
        let value = " Authorization = Basic%20YTpi== ,x-scope-orgid=caf%C3%A9%2C1,";
        let headers = read(&[("OTEL_EXPORTER_OTLP_HEADERS", value)]).unwrap().headers;
        let expected = [("Authorization", "Basic YTpi=="), ("x-scope-orgid", "caf\u{e9},1")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn the_service_name_wins_over_the_attribute() {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment.name=prod"),
            ("OTEL_SERVICE_NAME", "b"),
        ];
        let attributes = read(&variables).unwrap().attributes;
        let expected = [("deployment.environment.name", "prod"), ("service.name", "b")];
        assert_eq!(attributes, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(read(&variables[..1]).unwrap().attributes["service.name"], "a");
        assert_eq!(read(&[("OTEL_SERVICE_NAME", " b\r")]).unwrap().attributes["service.name"], "b");
    }

    #[test]
    fn wrong_values_are_errors_without_secrets() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "=secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%ff"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0d%0ab"),
            ("OTEL_RESOURCE_ATTRIBUTES", "secret"),
            ("OTEL_SERVICE_NAME", "secret\rb"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
    }
}
