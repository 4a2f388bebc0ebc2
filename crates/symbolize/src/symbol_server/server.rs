//! Symbol servers: what they are called, and where they have the debug file of a build id.

use profiler_elf_symbols::BuildId;

/// What the builds of .NET that Microsoft ships come from.
const MICROSOFT: &str = "https://msdl.microsoft.com/download/symbols";

/// The servers of a distribution, separated by spaces (debuginfod-client-config(7)).
const DEBUGINFOD_URLS: &str = "DEBUGINFOD_URLS";

/// A SHA-1 in hexadecimal: a shorter build id has zeros behind it.
const SSQP_ID_DIGITS: usize = 40;

/// How a server lays out what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentLayout {
    /// Simple Symbol Query Protocol ("SSQP Key Conventions", section "ELF-buildid").
    Ssqp,
    /// debuginfod(8), section "Webapi".
    Debuginfod,
}

impl SegmentLayout {
    /// Where the debug file is below the server's address. Of the id nothing but hexadecimal digits goes into it.
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

/// A server that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Without a slash behind it.
    pub url: String,
    /// The layouts it may have, likeliest first.
    pub layouts: Vec<SegmentLayout>,
}

impl Server {
    /// The servers of a name: `microsoft`, `debuginfod` for those of `DEBUGINFOD_URLS`, or an address, whose layout is
    /// found out. Why there are none, where there are none.
    pub fn of_name(name: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Self>, String> {
        match name {
            "microsoft" => Ok(vec![Self::at(MICROSOFT, &[SegmentLayout::Ssqp])]),
            "debuginfod" => {
                let urls = variable(DEBUGINFOD_URLS).unwrap_or_default();
                // Between the addresses stand words about signatures.
                let urls = urls.split_whitespace().filter(|url| is_address(url));
                let servers: Vec<_> = urls.map(|url| Self::at(url, &[SegmentLayout::Debuginfod])).collect();
                if servers.is_empty() {
                    return Err(format!(
                        "the symbol server `debuginfod` needs addresses in {DEBUGINFOD_URLS}"
                    ));
                }
                Ok(servers)
            }
            url if is_address(url) => {
                Ok(vec![Self::at(url, &[SegmentLayout::Ssqp, SegmentLayout::Debuginfod])])
            }
            other => Err(format!(
                "`{other}` is no symbol server: give an address that begins with https:// or http://, `microsoft`, or \
                 `debuginfod`"
            )),
        }
    }

    fn at(url: &str, layouts: &[SegmentLayout]) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), layouts: layouts.to_vec() }
    }
}

fn is_address(text: &str) -> bool {
    let host = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    host.is_some_and(|host| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_name(name: &str, urls: &str) -> Result<Vec<Server>, String> {
        Server::of_name(name, |variable| (variable == DEBUGINFOD_URLS).then(|| urls.to_owned()))
    }

    #[test]
    fn both_layouts_have_a_build_id_in_lower_case_digits() {
        let id = BuildId::new(&[0xAB, 0xCD, 0x01]).unwrap();
        let padded = format!("abcd01{}", "0".repeat(34));
        assert_eq!(SegmentLayout::Ssqp.path(&id), format!("_.debug/elf-buildid-sym-{padded}/_.debug"));
        assert_eq!(SegmentLayout::Debuginfod.path(&id), "buildid/abcd01/debuginfo");
        let long = BuildId::new(&[7; 32]).unwrap();
        assert_eq!(SegmentLayout::Ssqp.path(&long).len(), "_.debug/elf-buildid-sym-/_.debug".len() + 64);
    }

    #[test]
    fn names_stand_for_servers_and_addresses_for_themselves() {
        let microsoft = of_name("microsoft", "").unwrap();
        assert_eq!((&*microsoft[0].url, &*microsoft[0].layouts), (MICROSOFT, &[SegmentLayout::Ssqp][..]));
        let distribution =
            of_name("debuginfod", " https://a.example/ ima:enforcing http://b.example ").unwrap();
        let urls: Vec<_> = distribution.iter().map(|server| &*server.url).collect();
        assert_eq!(urls, ["https://a.example", "http://b.example"]);
        let own = of_name("http://symbols.example:8080/store//", "").unwrap();
        assert_eq!(own[0].url, "http://symbols.example:8080/store");
        assert_eq!(own[0].layouts, [SegmentLayout::Ssqp, SegmentLayout::Debuginfod]);
    }

    #[test]
    fn what_is_no_server_is_said_so() {
        for name in ["", "symbols.example", "ftp://symbols.example", "https://", "file:///etc", "http://a b"]
        {
            assert!(of_name(name, "").unwrap_err().contains("microsoft"), "{name}");
        }
        assert!(of_name("debuginfod", "").unwrap_err().contains(DEBUGINFOD_URLS));
    }
}
