//! `.trace.zip` for PerfView: the archive of perfcollect with the samples as `perf script` text, the maps of processes
//! with JIT or precompiled code, and a log.
//!
//! `docs/design/outputs.md` has the layout and the rules by which PerfView reads it.

mod log;
mod maps;
#[cfg(test)]
mod tests;

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

/// The folder of all files: perfcollect names it as the archive, without `.zip`.
const FOLDER: &str = "profiler.trace";

/// The samples. PerfView reads the first file whose name ends in `.data.txt`.
const SAMPLES: &str = "perf.data.txt";

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
    let started = measured_at(profile);
    let mut archive = Archive { zip: ZipArchiveWriter::new(BufWriter::new(to)), started };
    archive.add(SAMPLES, |to| match method {
        Method::Whole(level) => pieces::pack(level, to, |to| script.write(to)),
        Method::Stacks => compress_stacks(profile, script, to),
    })?;
    let managed = maps::managed_frames(profile);
    for (pid, frames) in &managed {
        archive.add_text(&format!("perf-{pid}.map"), &maps::perf_map(profile, frames))?;
        archive.add_text(&format!("perfinfo-{pid}.map"), &maps::perf_info(profile, frames))?;
    }
    archive.add_text("perfcollect.log", &log::text(profile, started, &managed))?;
    archive.zip.finish().map_err(io_error)?.flush()
}

struct Archive<W> {
    zip: ZipArchiveWriter<W>,
    started: UtcDateTime,
}

impl<W: Write> Archive<W> {
    /// Adds a file; `write` writes its compressed content.
    fn add(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<Packed>,
    ) -> io::Result<()> {
        let path = format!("{FOLDER}/{name}");
        let file = self.zip.new_file(&path).compression_method(CompressionMethod::DEFLATE);
        let (mut file, _) = file.last_modified(self.started).start().map_err(io_error)?;
        let packed = write(&mut file)?;
        file.finish(DataDescriptorOutput::new(packed.crc32, packed.data_bytes)).map_err(io_error)?;
        Ok(())
    }

    fn add_text(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.add(name, |to| pieces::pack(Compression::default(), to, |to| to.write_all(text.as_bytes())))
    }
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
