//! The thread that downloads: asks one server after the other for one file after the other, within limits.

use profiler_elf_symbols::BuildId;
use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Cache, Download, Fetch, SegmentLayout, Server,
    http::{Refusal, Reply, Transport},
    requests::{Request, Requests},
};

/// One debug file. That of a whole browser has more than a gigabyte, that of a .NET runtime some fifty megabytes.
const MAX_FILE_BYTES: u64 = 2 << 30;

/// All debug files of a session: a disk is not to be filled.
const MAX_SESSION_BYTES: u64 = 8 << 30;

/// One debug file, from the first request for it to its last byte.
const MAX_FILE_TIME: Duration = Duration::from_secs(120);

/// All debug files of a session.
const MAX_SESSION_TIME: Duration = Duration::from_secs(600);

/// After so many failures a server is not asked any more.
const MAX_FAILURES: u32 = 3;

const PIECE_BYTES: usize = 64 << 10;

/// Downloads what is asked for.
pub(super) struct Downloader {
    servers: Vec<AskedServer>,
    transport: Box<dyn Transport>,
    cache: Cache,
    requests: Arc<Requests>,
    limits: Limits,
}

/// What may still be downloaded.
struct Limits {
    file_bytes: u64,
    bytes_left: u64,
    time_left: Duration,
}

struct AskedServer {
    server: Server,
    failures: u32,
}

/// Why a file did not come.
enum Failure {
    /// This server is of no use.
    Server(String),
    /// Nor is any other: there is no place to write to, no time left, or nobody waits any more.
    Here(String),
}

impl Downloader {
    pub(super) fn new(
        servers: Vec<Server>,
        transport: Box<dyn Transport>,
        cache: Cache,
        requests: Arc<Requests>,
    ) -> Self {
        let servers = servers.into_iter().map(|server| AskedServer { server, failures: 0 }).collect();
        let limits =
            Limits { file_bytes: MAX_FILE_BYTES, bytes_left: MAX_SESSION_BYTES, time_left: MAX_SESSION_TIME };
        Self { servers, transport, cache, requests, limits }
    }

    /// Downloads until nobody asks any more.
    pub(super) fn run(mut self) {
        while let Some(request) = self.requests.next() {
            let started = Instant::now();
            let fetch = self.fetch(&request);
            self.limits.time_left = self.limits.time_left.saturating_sub(started.elapsed());
            self.requests.settle(&request, fetch);
        }
    }

    fn fetch(&mut self, request: &Request) -> Fetch {
        let deadline = Instant::now() + MAX_FILE_TIME.min(self.limits.time_left);
        let mut fetch = Fetch::NotThere;
        for index in 0..self.servers.len() {
            match self.fetch_from(index, request, deadline) {
                Ok(true) => return Fetch::Found,
                Ok(false) => {}
                Err(Failure::Server(error)) => {
                    fetch = Fetch::Failed;
                    self.blame(index, &error);
                }
                Err(Failure::Here(error)) => {
                    log::warn!("the debug file of build id {} could not be downloaded: {error}", request.id);
                    return Fetch::Failed;
                }
            }
        }
        fetch
    }

    fn blame(&mut self, index: usize, error: &str) {
        let Some(AskedServer { server, failures }) = self.servers.get_mut(index) else { return };
        // A server that is not asked any more was blamed before.
        if *failures < MAX_FAILURES {
            *failures += 1;
            log::warn!("the symbol server {} failed: {error}", server.url);
        }
    }

    /// Whether the server has the file.
    fn fetch_from(&mut self, index: usize, request: &Request, deadline: Instant) -> Result<bool, Failure> {
        let Some(AskedServer { server, failures }) = self.servers.get_mut(index) else { return Ok(false) };
        if *failures >= MAX_FAILURES {
            return Err(Failure::Server(String::new()));
        }
        let Some((layout, reply)) = ask(&*self.transport, server, &request.id, deadline)? else {
            return Ok(false);
        };
        log::info!("downloading symbols from {}", server.url);
        self.receive(request, reply, deadline)?;
        // It has proven which layout it has.
        if let Some(AskedServer { server, .. }) = self.servers.get_mut(index) {
            server.layouts = vec![layout];
        }
        Ok(true)
    }

    fn receive(&mut self, request: &Request, reply: Reply, deadline: Instant) -> Result<(), Failure> {
        let here = |error: io::Error| Failure::Here(format!("failed to write to the symbol cache: {error}"));
        let mut part = self.cache.begin(&request.id).map_err(here)?;
        let limit_bytes = self.limits.file_bytes.min(self.limits.bytes_left);
        let mut body = reply.body;
        let mut download = Download {
            file_name: request.file_name.clone(),
            received_bytes: 0,
            total_bytes: reply.length_bytes,
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            self.requests.set_download(download.clone());
            if self.requests.has_ended() {
                return Err(Failure::Here("the session has ended".to_owned()));
            }
            if Instant::now() >= deadline {
                return Err(Failure::Here("it took too long".to_owned()));
            }
            let length = match body.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Server(error.to_string())),
            };
            download.received_bytes += length as u64;
            self.limits.bytes_left = self.limits.bytes_left.saturating_sub(length as u64);
            if download.received_bytes > limit_bytes {
                return Err(Failure::Server("it sends more than a debug file has".to_owned()));
            }
            part.write_all(piece.get(..length).unwrap_or_default()).map_err(here)?;
        }
        let proven = part.finish().map_err(here)?;
        proven.map_err(|_| Failure::Server("what it sent is not the debug file of the build id".to_owned()))
    }
}

/// The answer in the first layout in which the server has the file.
fn ask(
    transport: &dyn Transport,
    server: &Server,
    id: &BuildId,
    deadline: Instant,
) -> Result<Option<(SegmentLayout, Reply)>, Failure> {
    for layout in &server.layouts {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Here("it took too long".to_owned()));
        }
        match transport.get(&format!("{}/{}", server.url, layout.path(id)), left) {
            Ok(reply) => return Ok(Some((*layout, reply))),
            Err(Refusal::NotThere) => {}
            Err(Refusal::Failed(error)) => return Err(Failure::Server(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use object::elf::SHT_SYMTAB;
    use tempfile::TempDir;

    use super::*;
    use profiler_elf_symbols::test_file::{TestFile, function};

    const FIRST: &str = "http://first";
    const SECOND: &str = "http://second";

    /// What a server answers to a path, as it answers it.
    #[derive(Clone, Debug)]
    enum SymbolizedCode {
        Bytes(Vec<u8>),
        Endless,
        Broken,
        Refused,
    }

    /// Servers without a network.
    #[derive(Debug, Default)]
    struct TestServers {
        answers: HashMap<String, SymbolizedCode>,
        asked: std::sync::Mutex<Vec<String>>,
    }

    impl TestServers {
        fn with(mut self, url: &str, layout: SegmentLayout, answer: SymbolizedCode) -> Self {
            self.answers.insert(format!("{url}/{}", layout.path(&id())), answer);
            self
        }
    }

    impl Transport for Arc<TestServers> {
        fn get(&self, url: &str, _: Duration) -> Result<Reply, Refusal> {
            self.asked.lock().unwrap().push(url.to_owned());
            let body: Box<dyn Read + Send> = match self.answers.get(url).cloned() {
                None => return Err(Refusal::NotThere),
                Some(SymbolizedCode::Refused) => return Err(Refusal::Failed("it is tired".to_owned())),
                Some(SymbolizedCode::Bytes(bytes)) => Box::new(io::Cursor::new(bytes)),
                Some(SymbolizedCode::Endless) => Box::new(io::repeat(0)),
                Some(SymbolizedCode::Broken) => Box::new(Broken),
            };
            Ok(Reply { length_bytes: None, body })
        }
    }

    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the connection was closed"))
        }
    }

    fn id() -> BuildId {
        BuildId::new(&[0xab, 0xcd]).unwrap()
    }

    fn debug_file(id: &[u8]) -> SymbolizedCode {
        let symbols = [function("f", 0x1000, 8)];
        SymbolizedCode::Bytes(TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &symbols).bytes())
    }

    fn right() -> SymbolizedCode {
        debug_file(&[0xab, 0xcd])
    }

    /// A downloader that may ask both servers, and what it keeps its files in.
    fn downloader(servers: &Arc<TestServers>) -> (TempDir, Downloader) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::create(directory.path()).unwrap();
        let named = |url| Server::of_name(url, |_| None).unwrap();
        let transport = Box::new(Arc::clone(servers));
        let mut downloader =
            Downloader::new([named(FIRST), named(SECOND)].concat(), transport, cache, Arc::default());
        downloader.limits.file_bytes = 1 << 20;
        (directory, downloader)
    }

    fn fetch(servers: TestServers) -> (Fetch, bool) {
        let (directory, mut downloader) = downloader(&Arc::new(servers));
        let fetch = downloader.fetch(&request());
        let files: Vec<_> = fs::read_dir(directory.path().join("abcd")).into_iter().flatten().collect();
        assert!(files.len() <= 1);
        (fetch, directory.path().join("abcd/debuginfo").exists())
    }

    fn request() -> Request {
        Request { id: id(), file_name: "libx.so".to_owned() }
    }

    #[test]
    fn a_file_is_found_in_either_layout_on_any_server() {
        for server in [FIRST, SECOND] {
            for layout in [SegmentLayout::Ssqp, SegmentLayout::Debuginfod] {
                let servers = TestServers::default().with(server, layout, right());
                assert_eq!(fetch(servers), (Fetch::Found, true));
            }
        }
        assert_eq!(fetch(TestServers::default()), (Fetch::NotThere, false));
    }

    #[test]
    fn what_is_not_the_debug_file_is_not_kept_and_the_next_server_is_asked() {
        let wrong = [debug_file(&[1, 2]), SymbolizedCode::Bytes(b"<html>".to_vec()), SymbolizedCode::Endless];
        for wrong in wrong.into_iter().chain([SymbolizedCode::Broken, SymbolizedCode::Refused]) {
            let servers = TestServers::default().with(FIRST, SegmentLayout::Ssqp, wrong);
            let servers_and_right =
                TestServers { answers: servers.answers.clone(), ..TestServers::default() };
            assert_eq!(fetch(servers), (Fetch::Failed, false));
            let servers_and_right = servers_and_right.with(SECOND, SegmentLayout::Debuginfod, right());
            assert_eq!(fetch(servers_and_right), (Fetch::Found, true));
        }
    }

    #[test]
    fn a_layout_that_has_proven_right_is_the_only_one_from_then_on() {
        let servers = Arc::new(TestServers::default().with(FIRST, SegmentLayout::Debuginfod, right()));
        let (_directory, mut downloader) = downloader(&servers);
        assert_eq!(downloader.fetch(&request()), Fetch::Found);
        assert_eq!(servers.asked.lock().unwrap().len(), 2);
        assert_eq!(downloader.fetch(&request()), Fetch::Found);
        assert_eq!(servers.asked.lock().unwrap().len(), 3);
    }

    #[test]
    fn a_server_that_keeps_failing_is_not_asked_any_more() {
        let servers = TestServers::default().with(FIRST, SegmentLayout::Ssqp, SymbolizedCode::Refused).with(
            SECOND,
            SegmentLayout::Ssqp,
            SymbolizedCode::Refused,
        );
        let servers = Arc::new(servers);
        let (_directory, mut downloader) = downloader(&servers);
        for _ in 0..2 * MAX_FAILURES {
            assert_eq!(downloader.fetch(&request()), Fetch::Failed);
        }
        assert_eq!(servers.asked.lock().unwrap().len(), 2 * MAX_FAILURES as usize);
    }

    #[test]
    fn there_is_an_end_of_bytes_and_of_time_for_all_files_together() {
        let servers = Arc::new(TestServers::default().with(FIRST, SegmentLayout::Ssqp, right()));
        let (_directory, mut downloader) = downloader(&servers);
        downloader.limits.bytes_left = 10;
        assert_eq!(downloader.fetch(&request()), Fetch::Failed);
        downloader.limits.bytes_left = MAX_SESSION_BYTES;
        downloader.limits.time_left = Duration::ZERO;
        assert_eq!(downloader.fetch(&request()), Fetch::Failed);
    }

    #[test]
    fn nothing_is_downloaded_for_a_session_that_has_ended() {
        let servers =
            Arc::new(TestServers::default().with(FIRST, SegmentLayout::Ssqp, SymbolizedCode::Endless));
        let (_directory, mut downloader) = downloader(&servers);
        downloader.limits.file_bytes = u64::MAX;
        downloader.requests.end();
        assert_eq!(downloader.fetch(&request()), Fetch::Failed);
        downloader.run();
    }
}
