//! Tests of the spool: its format, its bound, and what it does with files that it did not write.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::*;
use crate::{Encoded, Message};

fn pending(samples: u64, body: &[u8]) -> Pending {
    Pending { started_unix_ns: 1_000 + samples, samples, body: Bytes::copy_from_slice(body) }
}

fn options(directory: &Path, max_bytes: u64) -> SpoolOptions {
    SpoolOptions { directory: directory.to_owned(), max_bytes }
}

/// A spool with its queue, for the ledger.
fn open(directory: &Path) -> (Spool, Queue) {
    let queue = Queue::new(MAX);
    let spool = Spool::open(&options(directory, MAX), &queue).unwrap();
    (spool, queue)
}

const MAX: u64 = 1 << 20;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn only_file(directory: &TempDir) -> PathBuf {
    let names = names(directory.path());
    assert_eq!(names.len(), 1, "{names:?}");
    directory.path().join(&names[0])
}

#[test]
fn messages_are_read_again_in_order_by_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let messages = [pending(1, b"one"), pending(2, b""), pending(3, &[7; 10_000])];
    let (mut spool, _) = open(directory.path());
    for message in &messages {
        spool.append(message).unwrap();
    }
    drop(spool);
    let (mut spool, queue) = open(directory.path());
    let ledger = queue.ledger();
    assert_eq!((ledger.recovered, ledger.spooled, ledger.spool_bytes), (6, 6, 5 * 4096));
    for message in &messages {
        assert_eq!(&spool.begin_sending().unwrap(), message);
        let file = spool.remove_oldest().unwrap();
        queue.settle_spooled(file.samples, file.file_bytes, Settlement::Delivered);
        assert!(queue.ledger().is_exact());
    }
    assert_eq!((queue.ledger().delivered, queue.ledger().spool_bytes), (6, 0));
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn no_other_user_has_access() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("spool");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let (mut spool, _) = open(&directory);
    spool.append(&pending(1, b"secret")).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(directory.join(&names(&directory)[0])).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn one_process_uses_a_directory_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let (_spool, queue) = open(directory.path());
    let error = Spool::open(&options(directory.path(), MAX), &queue).unwrap_err();
    assert!(error.to_string().contains("another process uses it"), "{error}");
}

#[test]
fn the_oldest_messages_are_removed_for_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Queue::new(MAX);
    let mut spool = Spool::open(&options(directory.path(), 3 * 4096), &queue).unwrap();
    let mut removed = Vec::new();
    for samples in 1..=5 {
        let message = pending(samples, &[0; 4000]);
        while let Some(file) = spool.remove_oldest_for(&message) {
            removed.push(file.samples);
        }
        spool.append(&message).unwrap();
        assert!(names(directory.path()).len() <= 3);
    }
    assert_eq!(removed, [1, 2]);
    let large = pending(9, &[0; 3 * 4096]);
    assert_eq!(spool.remove_oldest_for(&large), None, "no message makes space for it");
    assert!(spool.append(&large).is_err());
    drop(spool);
    // A smaller limit after a restart.
    let spool = Spool::open(&options(directory.path(), 4096), &queue).unwrap();
    assert_eq!(spool.oldest().map(|file| file.samples), Some(5));
    assert_eq!((queue.ledger().recovered, queue.ledger().dropped.outage), (12, 7));
    assert!(queue.ledger().is_exact());
}

#[test]
fn a_message_that_was_being_sent_is_ambiguous_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(directory.path());
    spool.append(&pending(5, b"first")).unwrap();
    spool.append(&pending(6, b"second")).unwrap();
    spool.begin_sending().unwrap();
    drop(spool);
    let (mut spool, queue) = open(directory.path());
    let ledger = queue.ledger();
    assert_eq!((ledger.recovered, ledger.ambiguous, ledger.spooled), (11, 5, 6));
    assert!(ledger.is_exact(), "{ledger:?}");
    spool.begin_sending().unwrap();
    spool.end_sending();
    drop(spool);
    assert_eq!(open(directory.path()).1.ledger().spooled, 6);
}

#[test]
fn partial_files_are_removed_and_files_of_other_programs_remain() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["00000000000000000007.partial", "notes.txt", "7.message", "00000000000000000007.other"] {
        fs::write(directory.path().join(name), "content").unwrap();
    }
    let (_, queue) = open(directory.path());
    assert_eq!(names(directory.path()), ["00000000000000000007.other", "7.message", "notes.txt"]);
    assert_eq!(queue.ledger(), crate::delivery::DeliveryLedger::default());
}

/// Each byte of a file changed, and each length.
#[test]
fn every_change_of_a_file_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(directory.path());
    spool.append(&pending(5, b"body of a message")).unwrap();
    drop(spool);
    let path = only_file(&directory);
    let whole = fs::read(&path).unwrap();
    let mut damaged: Vec<_> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    damaged.push([&whole[..], b"!"].concat());
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x10;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let (mut spool, queue) = open(directory.path());
        let is_found_at_start = queue.ledger().damaged_spool_files == 1 && spool.oldest().is_none();
        let result = spool.begin_sending();
        assert!(is_found_at_start || matches!(result, Err(ReadError::Damaged(_))), "{bytes:?}");
        assert!(queue.ledger().is_exact());
        assert!(!is_found_at_start || names(directory.path()).is_empty());
        spool.remove_oldest();
    }
}

#[test]
fn links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(outside.path());
    spool.append(&pending(5, b"body")).unwrap();
    drop(spool);
    let target = only_file(&outside);
    symlink(&target, directory.path().join(target.file_name().unwrap())).unwrap();
    // Where the next message would be written.
    symlink(outside.path().join("created"), directory.path().join("00000000000000000001.partial")).unwrap();
    let (_, queue) = open(directory.path());
    assert_eq!((queue.ledger().damaged_spool_files, queue.ledger().recovered), (1, 0));
    assert_eq!(names(directory.path()), [""; 0]);
    assert_eq!(only_file(&outside), target);

    let link = directory.path().join("link");
    symlink(outside.path(), &link).unwrap();
    assert!(Spool::open(&options(&link, MAX), &queue).is_err());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let queue = Queue::new(MAX);
    // As root, a directory is given away; another user does not own that of the temporary files.
    let refused = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(65_534), None).unwrap();
        directory.path()
    } else {
        Path::new("/")
    };
    let error = Spool::open(&options(refused, MAX), &queue).unwrap_err();
    assert!(error.to_string().contains("another user"), "{error}");
}

#[test]
fn a_file_that_vanishes_is_lost_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(directory.path());
    spool.append(&pending(5, b"body")).unwrap();
    fs::remove_file(only_file(&directory)).unwrap();
    assert!(matches!(spool.begin_sending(), Err(ReadError::Damaged(_))));
    assert_eq!(spool.remove_oldest().map(|file| file.samples), Some(5));
}

#[test]
fn a_pushed_message_has_the_same_samples_in_memory_and_in_the_spool() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, queue) = open(directory.path());
    let message = Message { started_unix_ns: 1, samples: 9, body: vec![1; 5000] };
    queue.push(Encoded { messages: vec![message], too_large: 0 });
    let message = queue.take().unwrap();
    let file_bytes = spool.append(&message).unwrap();
    queue.move_to_spool(&message, file_bytes);
    let ledger = queue.ledger();
    assert_eq!((ledger.queued, ledger.queue_bytes, ledger.spooled, ledger.spool_bytes), (0, 0, 9, 8192));
    assert!(ledger.is_exact(), "{ledger:?}");
}

#[test]
fn a_file_with_more_samples_than_a_window_can_have_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(directory.path());
    for samples in [u64::MAX, 1, u64::MAX / 2] {
        spool.append(&pending(samples / 2, b"body")).unwrap();
    }
    drop(spool);
    let (mut spool, queue) = open(directory.path());
    let ledger = queue.ledger();
    assert_eq!((ledger.recovered, ledger.spooled, ledger.damaged_spool_files), (0, 0, 2), "{ledger:?}");
    assert_eq!(spool.begin_sending().unwrap(), pending(0, b"body"));
}

#[test]
fn a_file_with_the_last_number_is_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let (mut spool, _) = open(directory.path());
    spool.append(&pending(1, b"old")).unwrap();
    drop(spool);
    let last = directory.path().join(format!("{}.message", u64::MAX));
    fs::rename(only_file(&directory), &last).unwrap();
    let (mut spool, queue) = open(directory.path());
    assert_eq!(queue.ledger().recovered, 0);
    for samples in [2, 3] {
        spool.append(&pending(samples, b"new")).unwrap();
    }
    assert_eq!(spool.begin_sending().unwrap(), pending(2, b"new"));
    assert!(last.exists());
}
