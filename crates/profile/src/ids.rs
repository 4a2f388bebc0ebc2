//! Ids of the entries of a profile's tables.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident: $number:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($number);

        impl $name {
            /// The index of the entry in the profile's table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the entry at `index`; a table is bounded far below the largest number.
            pub(crate) fn from_index(index: usize) -> Self {
                Self($number::try_from(index).unwrap_or($number::MAX))
            }
        }
    };
}

id! {
    /// The id of a string of a profile.
    StringId: u32
}
id! {
    /// The id of a module of a profile.
    ModuleId: u32
}
id! {
    /// The id of a frame of a profile.
    FrameId: u32
}
id! {
    /// The id of a stack of a profile.
    StackId: u32
}
id! {
    /// The id of a process of a profile.
    ProcessId: u32
}
id! {
    /// The id of a thread of a profile.
    ThreadId: u32
}

id! {
    /// The id of an event of a profile.
    EventId: u16
}

impl Default for EventId {
    fn default() -> Self {
        Self::FIRST
    }
}

impl EventId {
    /// The first event, which formats of a single event show.
    pub const FIRST: Self = Self(0);
}
