//! The release of the running kernel (uname(2)).

/// Major and minor version of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease {
    /// The 6 of 6.18.
    pub major: u32,
    /// The 18 of 6.18.
    pub minor: u32,
}

impl KernelRelease {
    /// The release of the running kernel.
    pub(crate) fn current() -> Self {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }

    /// Parses the output of `uname -r`, `6.18.44-cloud-amd64`; 0.0 if it has no version.
    fn parse(release: &str) -> Self {
        let mut numbers =
            release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
        Self { major: numbers.next().unwrap_or(0), minor: numbers.next().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        let release = |text| KernelRelease::parse(text);
        assert_eq!(release("6.18.44-fc-v669"), KernelRelease { major: 6, minor: 18 });
        assert_eq!(release("5.10"), KernelRelease { major: 5, minor: 10 });
        assert_eq!(release("5.10-rc1"), KernelRelease { major: 5, minor: 10 });
        assert_eq!(release("next"), KernelRelease::default());
        assert!(release("5.9.16") < release("5.10.0"));
    }
}
