//! A trace as PerfView opens it: the folder that perfcollect packs, with the samples as text.
//!
//! PerfView takes the first file whose name ends in `.data.txt`, and reads the maps beside it for frames that have no
//! name there. Every frame has one, so there are no maps.

use std::io::{self, BufWriter, Write};

use rawzip::{
    CompressionMethod, DataDescriptorOutput, Error, ErrorKind, ZipArchiveWriter, time::UtcDateTime,
};

use super::{deflate, perf_script};
use crate::profile::Profile;

const SAMPLES: &str = "profiler.trace/perf.data.txt";

/// Writes the archive.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    let mut archive = ZipArchiveWriter::new(BufWriter::new(to));
    write_samples(profile, &mut archive)?;
    archive.finish().map_err(io_error)?.flush()
}

fn write_samples(profile: &Profile, archive: &mut ZipArchiveWriter<impl Write>) -> io::Result<()> {
    let file = archive.new_file(SAMPLES).compression_method(CompressionMethod::DEFLATE);
    let (mut file, _) = file.last_modified(measured_at(profile)).start().map_err(io_error)?;
    let packed = deflate::pack(&mut file, |to| perf_script::write_text(profile, to))?;
    file.finish(DataDescriptorOutput::new(packed.crc32, packed.data_bytes)).map_err(io_error)?;
    Ok(())
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
    use crate::profile::test_profile;

    #[test]
    fn the_archive_holds_the_samples_as_text() {
        let profile = test_profile::random(1);
        let (mut archive, mut expected, mut found) = (Vec::new(), Vec::new(), Vec::new());
        write(&profile, &mut archive).unwrap();
        perf_script::write(&profile, &mut expected).unwrap();
        let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
        archive.by_name(SAMPLES).unwrap().read_to_end(&mut found).unwrap();
        assert_eq!(found, expected);
    }
}
