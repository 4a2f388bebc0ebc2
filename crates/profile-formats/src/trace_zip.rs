//! `.trace.zip` for PerfView: the archive of perfcollect with the samples as `perf script` text.
//!
//! PerfView reads the first file whose name ends in `.data.txt`, and perf maps beside it for unsymbolized frames. Every
//! frame has a name here, so the archive has no maps.

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
    let way = Method::of(&Sizes::of(profile, &script));
    write_compressed(profile, &script, way, to)
}

/// How the text is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// The whole text.
    Whole(Compression),
    /// Each stack once, copied for each of its samples.
    Stacks,
}

impl Method {
    /// The method with the smallest file that compresses gigabytes in about a second on two CPUs.
    fn of(sizes: &Sizes) -> Self {
        const SMALL_BYTES: u64 = 64 << 20;
        const LARGE_BYTES: u64 = 512 << 20;
        /// A stack that is compressed alone is larger and takes longer, so it must repeat.
        const MIN_SAMPLES_OF_A_STACK: u64 = 4;
        /// Compressed stacks are held in memory, in about a quarter of this.
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
    /// Text of the stacks of all samples, bytes.
    text: u64,
    /// Text of each distinct stack, bytes.
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

fn write_compressed(
    profile: &Profile,
    script: &Script<'_>,
    method: Method,
    to: impl Write,
) -> io::Result<()> {
    let mut archive = ZipArchiveWriter::new(BufWriter::new(to));
    let file = archive.new_file(SAMPLES).compression_method(CompressionMethod::DEFLATE);
    let (mut file, _) = file.last_modified(measured_at(profile)).start().map_err(io_error)?;
    let packed = match method {
        Method::Whole(level) => pieces::pack(level, &mut file, |to| script.write(to))?,
        Method::Stacks => compress_stacks(profile, script, &mut file)?,
    };
    file.finish(DataDescriptorOutput::new(packed.crc32, packed.data_bytes)).map_err(io_error)?;
    archive.finish().map_err(io_error)?.flush()
}

fn compress_stacks(profile: &Profile, script: &Script<'_>, to: impl Write) -> io::Result<Packed> {
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
    fn every_compression_method_gives_the_same_text() {
        for (seed, way) in
            [Method::Whole(Compression::default()), Method::Whole(Compression::fast()), Method::Stacks]
                .into_iter()
                .enumerate()
        {
            let profile = test_profile::random(seed as u64);
            let (mut archive, mut expected, mut found) = (Vec::new(), Vec::new(), Vec::new());
            write_compressed(&profile, &Script::of(&profile), way, &mut archive).unwrap();
            perf_script::write(&profile, &mut expected).unwrap();
            let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
            archive.by_name(SAMPLES).unwrap().read_to_end(&mut found).unwrap();
            assert!(found == expected, "{way:?}");
        }
    }

    #[test]
    fn repeated_stacks_are_compressed_once() {
        const MIB: u64 = 1 << 20;
        let way = |text, stacks| Method::of(&Sizes { text: text * MIB, stacks: stacks * MIB });
        for (text, stacks, expected) in [
            (0, 0, Method::Whole(Compression::default())),
            (50, 1, Method::Whole(Compression::default())),
            (100, 1, Method::Whole(Compression::fast())),
            (1_000, 100, Method::Stacks),
            (1_000, 300, Method::Whole(Compression::fast())),
            (10_000, 300, Method::Whole(Compression::fast())),
        ] {
            assert_eq!(way(text, stacks), expected, "{text} {stacks}");
        }
    }

    #[test]
    fn text_sizes_are_computed_without_writing() {
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
