//! Ids of the entries of a profile's tables.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The index of the entry in the profile's table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the entry at `index`; a table is bounded far below `u32::MAX` entries.
            pub(crate) fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    };
}

id! {
    /// The id of a string of a profile.
    StringId
}
id! {
    /// The id of a module of a profile.
    ModuleId
}
id! {
    /// The id of a frame of a profile.
    FrameId
}
id! {
    /// The id of a stack of a profile.
    StackId
}
id! {
    /// The id of a process of a profile.
    ProcessId
}
id! {
    /// The id of a thread of a profile.
    ThreadId
}
