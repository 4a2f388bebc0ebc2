//! A captured stack, and how its frames were found.

use profiler_addresses::RuntimeAddress;
use profiler_common::{FrameFlags, unwind::StackEndReason};

/// The id of a captured stack; `None` is no stack on that side.
pub type RawStackId = Option<std::num::NonZeroU64>;

/// A captured stack: sent once, named by id from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct RawStack {
    /// The id by which samples name it.
    pub id: RawStackId,
    /// Leaf first. Those of an unwound stack carry [`FrameFlags`].
    pub addresses: Vec<u64>,
    /// `bpf_get_stack` reached its depth limit.
    #[cfg_attr(feature = "capture", serde(rename = "cut"))]
    pub is_truncated: bool,
    /// The number of the [`StackEndReason`] of an unwound stack; 0 for a stack of `bpf_get_stack`.
    #[cfg_attr(feature = "capture", serde(default, rename = "walk_end"))]
    pub end_reason: u8,
}

/// One frame of a captured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// The address to symbolize: one byte before a return address, in the call instruction.
    pub address: RuntimeAddress,
    /// How the unwinder came to it.
    pub found: FrameFound,
}

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFound {
    /// The leaf, which the tick interrupted.
    Sampled,
    /// By `bpf_get_stack`: a kernel stack, or a user stack by frame pointer.
    ByGetStack,
    /// Unwound by the CFI of the callee's code.
    ByCfi,
    /// Unwound by frame pointer, because the callee's code has no CFI.
    ByFramePointer,
    /// Unwound by an epilogue scan of the callee, which has neither CFI nor a frame.
    ByEpilogueScan,
    /// Unwound by rows computed from the instructions of the callee, which has no CFI.
    ByInstructions,
    /// Unwound by a signal frame: a signal interrupted it.
    Interrupted,
}

impl RawStack {
    /// Why an unwound stack ended; `None` for a stack of `bpf_get_stack`.
    pub fn end_reason(&self) -> Option<StackEndReason> {
        StackEndReason::from_number(self.end_reason)
    }

    /// The frames, leaf first. All but the leaf and those that a signal interrupted are return addresses, whose call
    /// instruction ends one byte earlier.
    pub fn frames(&self) -> impl Iterator<Item = RawFrame> + '_ {
        let is_unwound = self.end_reason().is_some();
        self.addresses.iter().enumerate().map(move |(depth, word)| {
            let (address, flags) =
                if is_unwound { (word & !FrameFlags::ALL, word & FrameFlags::ALL) } else { (*word, 0) };
            let address = RuntimeAddress(address);
            let found = match flags {
                _ if depth == 0 => FrameFound::Sampled,
                FrameFlags::INTERRUPTED => FrameFound::Interrupted,
                FrameFlags::BY_FRAME_POINTER => FrameFound::ByFramePointer,
                FrameFlags::BY_EPILOGUE_SCAN => FrameFound::ByEpilogueScan,
                FrameFlags::BY_INSTRUCTIONS => FrameFound::ByInstructions,
                _ if is_unwound => FrameFound::ByCfi,
                _ => FrameFound::ByGetStack,
            };
            let is_call = !matches!(found, FrameFound::Sampled | FrameFound::Interrupted);
            RawFrame { address: if is_call { address.call_site() } else { address }, found }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_symbolized_in_their_call_and_the_leaf_at_its_address() {
        let stack = RawStack { addresses: vec![0x1000, 0x2000, 0x3000], ..RawStack::default() };
        let frames = frames(&stack);
        let by_get_stack = FrameFound::ByGetStack;
        assert_eq!(frames, [(0x1000, FrameFound::Sampled), (0x1fff, by_get_stack), (0x2fff, by_get_stack)]);
    }

    #[test]
    fn an_interrupted_frame_is_symbolized_at_its_address() {
        let flagged = [0x3000 | FrameFlags::INTERRUPTED, 0x4000 | FrameFlags::BY_FRAME_POINTER];
        let scanned = [0x5000 | FrameFlags::BY_EPILOGUE_SCAN, 0x6000 | FrameFlags::BY_INSTRUCTIONS];
        let addresses = [&[0x1000, 0x2000][..], &flagged, &scanned].concat();
        let stack = RawStack { addresses, end_reason: StackEndReason::Root as u8, ..RawStack::default() };
        let expected = [
            (0x1000, FrameFound::Sampled),
            (0x1fff, FrameFound::ByCfi),
            (0x3000, FrameFound::Interrupted),
            (0x3fff, FrameFound::ByFramePointer),
            (0x4fff, FrameFound::ByEpilogueScan),
            (0x5fff, FrameFound::ByInstructions),
        ];
        assert_eq!(frames(&stack), expected);
    }

    fn frames(stack: &RawStack) -> Vec<(u64, FrameFound)> {
        stack.frames().map(|frame| (frame.address.0, frame.found)).collect()
    }
}
