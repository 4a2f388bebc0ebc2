//! Symbol servers by name or URL, and the URL path of a debug file in each protocol.

use profiler_elf_symbols::BuildId;

/// Microsoft's symbol server, which has the debug files of .NET runtimes built by Microsoft.
const MICROSOFT: &str = "https://msdl.microsoft.com/download/symbols";

/// Environment variable with the URLs of debuginfod servers, separated by spaces (debuginfod-client-config(7)).
const DEBUGINFOD_URLS: &str = "DEBUGINFOD_URLS";

/// Hexadecimal digits of a SHA-1. Shorter build ids are padded with zeros.
const SSQP_ID_DIGITS: usize = 40;

/// The protocol of a symbol server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProtocol {
    /// Simple Symbol Query Protocol ("SSQP Key Conventions", section "ELF-buildid").
    Ssqp,
    /// debuginfod(8), section "Webapi".
    Debuginfod,
}

impl ServerProtocol {
    /// The path of a debug file, relative to the URL of the server.
    pub fn path(self, id: &BuildId) -> String {
        match self {
            Self::Ssqp => {
                let digits = format!("{:0<SSQP_ID_DIGITS$}", id.to_string());
                format!("_.debug/elf-buildid-sym-{digits}/_.debug")
            }
            Self::Debuginfod => format!("buildid/{id}/debuginfo"),
        }
    }
}

/// A symbol server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// URL without a trailing slash.
    pub url: String,
    /// The protocols that it may have, the most likely first.
    pub protocols: Vec<ServerProtocol>,
}

impl Server {
    /// The servers with a name: `microsoft`, `debuginfod` (the servers in the environment variable `DEBUGINFOD_URLS`), or
    /// a URL. The protocol of a URL is detected by the first download.
    ///
    /// # Errors
    /// A message for the user when the name is unknown or `DEBUGINFOD_URLS` contains no URL.
    pub fn from_name(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Self>, String> {
        match name {
            "microsoft" => Ok(vec![Self::new(MICROSOFT, &[ServerProtocol::Ssqp])]),
            "debuginfod" => {
                let urls = variable(DEBUGINFOD_URLS).unwrap_or_default();
                // The variable can also contain options for signatures, such as `ima:enforcing`.
                let urls = urls.split_whitespace().filter(|url| is_http_url(url));
                let servers: Vec<_> = urls.map(|url| Self::new(url, &[ServerProtocol::Debuginfod])).collect();
                if servers.is_empty() {
                    return Err(format!(
                        "the symbol server `debuginfod` needs addresses in {DEBUGINFOD_URLS}"
                    ));
                }
                Ok(servers)
            }
            url if is_http_url(url) => {
                Ok(vec![Self::new(url, &[ServerProtocol::Ssqp, ServerProtocol::Debuginfod])])
            }
            other => Err(format!(
                "`{other}` is not a symbol server: give an address that begins with https:// or http://, `microsoft`, or \
                 `debuginfod`"
            )),
        }
    }

    fn new(url: &str, protocols: &[ServerProtocol]) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), protocols: protocols.to_vec() }
    }
}

fn is_http_url(text: &str) -> bool {
    let host = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(name: &str, urls: &str) -> Result<Vec<Server>, String> {
        Server::from_name(name, |variable| (variable == DEBUGINFOD_URLS).then(|| urls.to_owned()))
    }

    #[test]
    fn the_paths_of_both_protocols_contain_the_build_id_in_lower_case() {
        let id = BuildId::new(&[0xAB, 0xCD, 0x01]).unwrap();
        let padded = format!("abcd01{}", "0".repeat(34));
        assert_eq!(ServerProtocol::Ssqp.path(&id), format!("_.debug/elf-buildid-sym-{padded}/_.debug"));
        assert_eq!(ServerProtocol::Debuginfod.path(&id), "buildid/abcd01/debuginfo");
        let long = BuildId::new(&[7; 32]).unwrap();
        assert_eq!(ServerProtocol::Ssqp.path(&long).len(), "_.debug/elf-buildid-sym-/_.debug".len() + 64);
    }

    #[test]
    fn a_server_is_given_by_name_or_url() {
        let microsoft = servers("microsoft", "").unwrap();
        assert_eq!((&*microsoft[0].url, &*microsoft[0].protocols), (MICROSOFT, &[ServerProtocol::Ssqp][..]));
        let distribution =
            servers("debuginfod", " https://a.example/ ima:enforcing http://b.example ").unwrap();
        let urls: Vec<_> = distribution.iter().map(|server| &*server.url).collect();
        assert_eq!(urls, ["https://a.example", "http://b.example"]);
        let own = servers("http://symbols.example:8080/store//", "").unwrap();
        assert_eq!(own[0].url, "http://symbols.example:8080/store");
        assert_eq!(own[0].protocols, [ServerProtocol::Ssqp, ServerProtocol::Debuginfod]);
    }

    #[test]
    fn other_names_are_an_error() {
        for name in ["", "symbols.example", "ftp://symbols.example", "https://", "file:///etc", "http://a b"]
        {
            assert!(servers(name, "").unwrap_err().contains("microsoft"), "{name}");
        }
        assert!(servers("debuginfod", "").unwrap_err().contains(DEBUGINFOD_URLS));
    }
}
