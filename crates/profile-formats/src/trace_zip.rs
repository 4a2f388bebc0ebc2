//! A trace as PerfView opens it: the folder that perfcollect packs, with the samples as text.
//!
//! PerfView takes the first file whose name ends in `.data.txt`, and reads the maps beside it for frames that have no
//! name there. Every frame has one, so there are no maps.

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use rawzip::{
    CompressionMethod, DataDescriptorOutput, Error, ErrorKind, ZipArchiveWriter, time::UtcDateTime,
};

use super::{
    deflate::{
        Packed,
        parts::{self, Stream},
        pieces,
    },
    perf_script::Script,
};
use profiler_profile::Profile;

const SAMPLES: &str = "profiler.trace/perf.data.txt";

/// Writes the archive.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let script = Script::of(profile);
    let way = Way::of(&Sizes::of(profile, &script));
    write_packed(profile, &script, way, to)
}

/// How the text is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As it is.
    Whole(Compression),
    /// Each stack once, so that a sample takes no longer than to copy it.
    Stacks,
}

impl Way {
    /// The one that makes the smallest file without taking much longer than a second on two CPUs for gigabytes.
    fn of(sizes: &Sizes) -> Self {
        const SMALL_BYTES: u64 = 64 << 20;
        const LARGE_BYTES: u64 = 512 << 20;
        /// A stack that is packed for itself is larger and takes longer: it has to come again.
        const MIN_SAMPLES_OF_A_STACK: u64 = 4;
        /// Stacks are kept packed, in about a quarter of this.
        const MAX_STACKS_BYTES: u64 = 256 << 20;
        let stacks_come_again = sizes.text / MIN_SAMPLES_OF_A_STACK >= sizes.stacks;
        match sizes.text {
            0..=SMALL_BYTES => Self::Whole(Compression::default()),
            LARGE_BYTES.. if stacks_come_again && sizes.stacks <= MAX_STACKS_BYTES => Self::Stacks,
            _ => Self::Whole(Compression::fast()),
        }
    }
}

/// Bytes of text.
#[derive(Default)]
struct Sizes {
    /// Of the stacks of all samples.
    text: u64,
    /// Of each stack once.
    stacks: u64,
}

impl Sizes {
    fn of(profile: &Profile, script: &Script<'_>) -> Self {
        let stacks: Vec<u64> =
            profile.stacks().map(|stack| script.stack(stack).map(|line| line.len() as u64).sum()).collect();
        Self {
            text: profile.samples().iter().map(|sample| stacks[sample.stack.index()]).sum(),
            stacks: stacks.iter().sum(),
        }
    }
}

fn write_packed(profile: &Profile, script: &Script<'_>, way: Way, to: impl Write) -> io::Result<()> {
    let mut archive = ZipArchiveWriter::new(BufWriter::new(to));
    let file = archive.new_file(SAMPLES).compression_method(CompressionMethod::DEFLATE);
    let (mut file, _) = file.last_modified(measured_at(profile)).start().map_err(io_error)?;
    let packed = match way {
        Way::Whole(level) => pieces::pack(level, &mut file, |to| script.write(to))?,
        Way::Stacks => pack_stacks(profile, script, &mut file)?,
    };
    file.finish(DataDescriptorOutput::new(packed.crc32, packed.data_bytes)).map_err(io_error)?;
    archive.finish().map_err(io_error)?.flush()
}

fn pack_stacks(profile: &Profile, script: &Script<'_>, to: impl Write) -> io::Result<Packed> {
    let stacks: Vec<_> = profile.stacks().collect();
    let packed = parts::pack(stacks.len(), |index, text| {
        script.stack(stacks[index]).for_each(|line| text.extend_from_slice(line));
    })?;
    let mut stream = Stream::new(to);
    let mut head = Vec::new();
    for sample in profile.samples() {
        script.head(sample, &mut head);
        stream.store(&head)?;
        stream.part(&packed[sample.stack.index()])?;
    }
    stream.finish()
}

fn measured_at(profile: &Profile) -> UtcDateTime {
    const NS_PER_S: u64 = 1_000_000_000;
    UtcDateTime::from_unix(i64::try_from(profile.header().started_unix_ns / NS_PER_S).unwrap_or_default())
}

fn io_error(error: Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::IO(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use zip::ZipArchive;

    use super::*;
    use crate::perf_script;
    use profiler_profile::test_profile;

    #[test]
    fn the_archive_holds_the_samples_as_text_whatever_way_it_is_packed() {
        for (seed, way) in [Way::Whole(Compression::default()), Way::Whole(Compression::fast()), Way::Stacks]
            .into_iter()
            .enumerate()
        {
            let profile = test_profile::random(seed as u64);
            let (mut archive, mut expected, mut found) = (Vec::new(), Vec::new(), Vec::new());
            write_packed(&profile, &Script::of(&profile), way, &mut archive).unwrap();
            perf_script::write(&profile, &mut expected).unwrap();
            let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
            archive.by_name(SAMPLES).unwrap().read_to_end(&mut found).unwrap();
            assert!(found == expected, "{way:?}");
        }
    }

    #[test]
    fn stacks_are_packed_once_where_there_are_many_samples_of_each() {
        const MIB: u64 = 1 << 20;
        let way = |text, stacks| Way::of(&Sizes { text: text * MIB, stacks: stacks * MIB });
        for (text, stacks, expected) in [
            (0, 0, Way::Whole(Compression::default())),
            (50, 1, Way::Whole(Compression::default())),
            (100, 1, Way::Whole(Compression::fast())),
            (1_000, 100, Way::Stacks),
            (1_000, 300, Way::Whole(Compression::fast())),
            (10_000, 300, Way::Whole(Compression::fast())),
        ] {
            assert_eq!(way(text, stacks), expected, "{text} {stacks}");
        }
    }

    #[test]
    fn texts_are_measured_without_writing_them() {
        let profile = test_profile::random(3);
        let sizes = Sizes::of(&profile, &Script::of(&profile));
        let mut text = Vec::new();
        perf_script::write(&profile, &mut text).unwrap();
        let heads: usize = text
            .split(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b": "))
            .map(|line| line.len() + 1)
            .sum();
        assert_eq!(sizes.text, (text.len() - heads) as u64);
    }
}
