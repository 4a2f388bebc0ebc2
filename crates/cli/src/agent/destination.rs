//! Which backend the arguments and the variables of OpenTelemetry select, and how it is reached.

use anyhow::{Result, bail};
use profiler_agent::{
    delivery::{DeliveryOptions, Destination, SpoolOptions},
    environment::{Environment, Protocol},
};

use crate::{arguments::AgentArguments, wrong_arguments::WrongArguments};

/// The options of the delivery; `None` if no backend is selected. Arguments win over variables.
pub(super) fn delivery_options(
    arguments: &AgentArguments,
    environment: &Environment,
) -> Result<Option<DeliveryOptions>> {
    let Some(destination) = destination(arguments, environment)? else { return Ok(None) };
    let is_otlp = !matches!(destination, Destination::Pyroscope { .. });
    let directory = arguments.spool.clone();
    Ok(Some(DeliveryOptions {
        destination,
        headers: headers(arguments, if is_otlp { &environment.headers } else { &[] }),
        bearer_token_file: arguments.bearer_token_file.clone(),
        ca_file: arguments.ca_file.clone().or(environment.certificate.clone().filter(|_| is_otlp)),
        spool: directory.map(|directory| SpoolOptions { directory, max_bytes: arguments.spool_max }),
        timeout: environment.timeout.filter(|_| is_otlp).unwrap_or(DeliveryOptions::DEFAULT_TIMEOUT),
    }))
}

fn destination(arguments: &AgentArguments, environment: &Environment) -> Result<Option<Destination>> {
    if let Some(url) = &arguments.pyroscope {
        return Ok(Some(Destination::Pyroscope { url: url.clone() }));
    }
    let protocol = environment.protocol.unwrap_or(Protocol::Http);
    match &arguments.otlp {
        Some(url) => otlp(url, protocol).map(Some),
        // Variables do not add a backend to a directory.
        None if arguments.write_dir.is_some() => Ok(None),
        None => environment.url(protocol).map(|url| otlp(&url, protocol)).transpose(),
    }
}

/// A receiver by its URL, whose scheme may name the protocol.
fn otlp(url: &str, protocol: Protocol) -> Result<Destination> {
    let Some((scheme, rest)) = url.split_once("://") else {
        bail!(WrongArguments::new(format!(
            "`{url}` is not a URL: give http://HOST:4318, https://HOST or grpc://HOST:4317"
        )));
    };
    let (protocol, scheme) = match scheme {
        "grpc" => (Protocol::Grpc, "http"),
        "grpcs" => (Protocol::Grpc, "https"),
        other => (protocol, other),
    };
    let url = format!("{scheme}://{rest}");
    Ok(match protocol {
        Protocol::Grpc => Destination::OtlpGrpc { url },
        Protocol::Http => Destination::OtlpHttp { url },
    })
}

/// The headers of the arguments, and those of the variables that have other names.
fn headers(arguments: &AgentArguments, of_environment: &[(String, String)]) -> Vec<(String, String)> {
    let is_replaced =
        |name: &str| arguments.header.iter().any(|(replacing, _)| replacing.eq_ignore_ascii_case(name));
    let kept = of_environment.iter().filter(|(name, _)| !is_replaced(name));
    arguments.header.iter().chain(kept).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArguments,
    }

    fn options(line: &str, variables: &[(&str, &str)]) -> Option<DeliveryOptions> {
        let line = Line::try_parse_from(std::iter::once("agent").chain(line.split_whitespace())).unwrap();
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        delivery_options(&line.agent, &Environment::read(value).unwrap()).unwrap()
    }

    fn destination(line: &str, variables: &[(&str, &str)]) -> Option<Destination> {
        options(line, variables).map(|options| options.destination)
    }

    fn http(url: &str) -> Option<Destination> {
        Some(Destination::OtlpHttp { url: url.to_owned() })
    }

    fn grpc(url: &str) -> Option<Destination> {
        Some(Destination::OtlpGrpc { url: url.to_owned() })
    }

    #[test]
    fn the_scheme_or_the_variable_selects_grpc() {
        assert_eq!(destination("--otlp http://a:4318", &[]), http("http://a:4318"));
        assert_eq!(destination("--otlp grpc://a:4317", &[]), grpc("http://a:4317"));
        assert_eq!(destination("--otlp grpcs://a", &[]), grpc("https://a"));
        let variable = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        assert_eq!(destination("--otlp https://a", &variable), grpc("https://a"));
    }

    #[test]
    fn arguments_win_over_variables() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Scope-OrgID=b,x-other=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/b.pem"),
        ];
        assert_eq!(destination("", &variables), http("http://b:4318/v1development/profiles"));
        assert_eq!(destination("--write-dir /tmp", &variables), None);
        let options =
            options("--otlp http://a --header x-scope-orgid=a --ca-file /a.pem", &variables).unwrap();
        assert_eq!(options.destination, http("http://a").unwrap());
        let expected = [("x-scope-orgid", "a"), ("x-other", "1")];
        assert_eq!(options.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((options.timeout, options.ca_file), (Duration::from_millis(500), Some("/a.pem".into())));
    }

    #[test]
    fn pyroscope_gets_no_headers_of_otlp() {
        let variables =
            [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "500")];
        let options = options("--pyroscope http://a --spool /s --spool-max 1M", &variables).unwrap();
        assert_eq!((options.headers, options.timeout), (vec![], DeliveryOptions::DEFAULT_TIMEOUT));
        assert_eq!(options.spool, Some(SpoolOptions { directory: "/s".into(), max_bytes: 1 << 20 }));
    }

    #[test]
    fn nothing_selects_no_backend() {
        assert!(options("", &[]).is_none());
        let line = Line::try_parse_from(["agent", "--otlp", "a:4318"]).unwrap();
        let error = delivery_options(&line.agent, &Environment::default()).unwrap_err();
        assert!(error.to_string().contains("http://HOST:4318"), "{error}");
    }
}
