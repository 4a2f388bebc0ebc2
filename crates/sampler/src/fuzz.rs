//! Entry points of the fuzz targets for captures, BTF and BPF records. Built with `--cfg fuzzing` only.

#[cfg(feature = "capture")]
use crate::capture;
use crate::{
    ebpf::{self, btf::Btf},
    sys::kernel_file::KernelFile,
};

/// Parses the event log of a capture.
#[cfg(feature = "capture")]
pub fn parse_capture(bytes: &[u8]) {
    let _ = capture::parse(bytes);
}

/// Parses BTF and looks up members, sizes and enumerators.
pub fn parse_btf(bytes: &[u8]) {
    let Some(btf) = Btf::parse(KernelFile::Owned(bytes.to_vec())) else { return };
    for (structure, member) in [("outer", "deep"), ("task_struct", "nsproxy"), ("", "")] {
        let _ = (btf.member(structure, member), btf.size(structure), btf.enumerator(structure, member));
    }
}

/// Decodes a record of the ring buffer, and the same bytes as a sideband record: kind, flags, body.
pub fn decode_records(bytes: &[u8]) {
    ebpf::decode_records(bytes);
}
