//! A simulated .NET runtime, which answers commands with the sections of an input and with file descriptors.

use std::{
    fs::{self, File},
    io::{self, IoSlice, Read as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};

use profiler_dotnet_diagnostics::fuzz::{SOCKET_NAME, receive_methods};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown};

use super::{scratch_directory, sections};

/// Bits of the tag of an answer. The upper four are the number of descriptors that come with it.
const SENDS_ITS_SOCKET: u8 = 1;
const STAYS_OPEN: u8 = 2;
const CLOSES_OTHERS: u8 = 4;
const MAX_DESCRIPTORS: usize = 15;

/// The time until all descriptors of a conversation are closed, on a busy machine.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(4);

/// The methods of a runtime, and the end of its session. The first byte selects the reports that are requested. No
/// descriptor that the runtime sends stays open.
pub fn diagnostics(bytes: &[u8]) {
    let Some((reports, answers)) = bytes.split_first() else { return };
    let directory = scratch_directory();
    let descriptors_before = open_descriptors();
    let listener = UnixListener::bind(directory.path().join(SOCKET_NAME)).expect("a socket");
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, answers));
        receive_methods(directory.path(), *reports).expect("the directory of the socket exists");
        // Ends the wait for the next connection.
        shutdown(&listener, Shutdown::Both).expect("the end of the listener");
    });
    drop(listener);
    // The listener thread of the profiler is not joined.
    let deadline = Instant::now() + MAX_CLOSE_TIME;
    while open_descriptors() > descriptors_before {
        assert!(Instant::now() < deadline, "descriptors stay open");
        thread::yield_now();
    }
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("the descriptors of this process").count()
}

/// Answers each command with the next section. Without another one, all connections are closed.
fn serve(listener: &UnixListener, answers: &[u8]) {
    let mut answers = sections(answers).into_iter();
    let mut others = Vec::new();
    while let Ok((mut stream, _)) = listener.accept() {
        let answer = answers.next().filter(|_| read_command(&mut stream).is_ok());
        let Some((tag, content)) = answer else {
            others.clear();
            continue;
        };
        // The profiler may have closed the connection.
        let _ = send_answer(&stream, tag, content);
        if tag & CLOSES_OTHERS != 0 {
            others.clear();
        }
        if tag & STAYS_OPEN != 0 {
            others.push(stream);
        }
    }
}

fn read_command(stream: &mut UnixStream) -> io::Result<()> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let length = usize::from(u16::from_le_bytes([header[14], header[15]]));
    stream.read_exact(&mut vec![0; length.saturating_sub(header.len())])
}

fn send_answer(stream: &UnixStream, tag: u8, content: &[u8]) -> rustix::io::Result<()> {
    let null = File::open("/dev/null").expect("/dev/null");
    let descriptor = if tag & SENDS_ITS_SOCKET != 0 { stream.as_fd() } else { null.as_fd() };
    let mut sent =
        send_with_descriptors(stream, &[descriptor; MAX_DESCRIPTORS][..usize::from(tag >> 4)], content)?;
    while sent < content.len() {
        sent += send(stream, &content[sent..], SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Sends the first bytes with descriptors. A kernel that refuses descriptors for the receiver sends nothing.
fn send_with_descriptors(
    stream: &UnixStream,
    descriptors: &[BorrowedFd<'_>],
    content: &[u8],
) -> rustix::io::Result<usize> {
    if descriptors.is_empty() {
        return Ok(0);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    match sendmsg(stream, &[IoSlice::new(content)], &mut control, SendFlags::NOSIGNAL) {
        Err(rustix::io::Errno::PERM) => Ok(0),
        result => result,
    }
}
