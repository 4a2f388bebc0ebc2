//! Addresses, each kind its own type: an address of a running process is not one of a file.

use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// An address in the memory of a running process or of the kernel.
    RuntimeAddress
}
address! {
    /// An address as an ELF file counts them (`st_value`, `p_vaddr`): what `addr2line` and `nm` speak of.
    ElfAddress
}
address! {
    /// A byte offset in a file.
    FileOffset
}

impl RuntimeAddress {
    /// Addresses from here on up belong to the kernel, on both x86-64 and arm64.
    pub const KERNEL_START: Self = Self(0xffff_0000_0000_0000);

    /// Where to look a return address up: one byte earlier, in the call itself. The call may be the last
    /// instruction of its function or of its line, and the address behind it then belongs to the next one.
    #[must_use]
    pub fn call_site(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_in_its_call() {
        assert_eq!(RuntimeAddress(0x1000).call_site(), RuntimeAddress(0xfff));
    }
}
