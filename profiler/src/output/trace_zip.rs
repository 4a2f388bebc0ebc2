//! A trace as PerfView opens it: the folder that perfcollect packs, with the samples as text.
//!
//! PerfView takes the first file whose name ends in `.data.txt`, and reads the maps beside it for frames that have no
//! name there. Every frame has one, so there are no maps.

use std::io::{self, BufWriter, Write};

use zip::{CompressionMethod, DateTime, ZipWriter, result::ZipError, write::SimpleFileOptions};

use super::perf_script;
use crate::profile::Profile;

const SAMPLES: &str = "profiler.trace/perf.data.txt";

/// Writes the archive.
pub(super) fn write(profile: &Profile, to: impl Write) -> io::Result<()> {
    // The fastest level: the text of a million samples is gigabytes of what repeats.
    const LEVEL: i64 = 1;
    let mut archive = ZipWriter::new_stream(BufWriter::new(to));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(LEVEL))
        .last_modified_time(DateTime::default())
        .large_file(true);
    archive.start_file(SAMPLES, options).map_err(io_error)?;
    perf_script::write(profile, &mut archive)?;
    archive.finish().map_err(io_error)?.flush()
}

fn io_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
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
