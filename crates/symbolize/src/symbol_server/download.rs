//! The download thread: tries the servers for each requested debug file, within limits on bytes and time.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_elf_symbols::BuildId;

use super::{
    Cache, Server, ServerProtocol,
    requests::{BUDGET_PERIOD, Download, FetchStatus, Request, Requests},
    transport::{Response, Transport, TransportError},
};
use profiler_processes::tenants::TenantShares;

/// Size of a debug file. That of a web browser has more than a gigabyte, that of a .NET runtime 50 megabytes.
const MAX_FILE_BYTES: u64 = 2 << 30;

/// Size of all debug files of a [`BUDGET_PERIOD`] together, shared out by tenant. The limit bounds the disk usage.
const MAX_PERIOD_BYTES: usize = 8 << 30;

/// Time limit of one debug file, from the first request to the last byte.
const FILE_TIME_LIMIT: Duration = Duration::from_secs(120);

/// Time limit of all debug files of a [`BUDGET_PERIOD`] together, shared out by tenant.
const PERIOD_TIME_LIMIT_MS: usize = 20 * 60 * 1000;

/// Failures after which a server is not used until the next [`BUDGET_PERIOD`].
const MAX_SERVER_FAILURES: u32 = 3;

/// Bytes per read of a response.
const CHUNK_BYTES: usize = 64 << 10;

/// Downloads requested debug files.
pub(super) struct Downloader {
    servers: Vec<ServerState>,
    transport: Box<dyn Transport>,
    cache: Cache,
    requests: Arc<Requests>,
    budget: Budget,
}

/// The remaining budget of the period.
struct Budget {
    period_started: Instant,
    max_file_bytes: u64,
    bytes: TenantShares,
    time_ms: TenantShares,
}

struct ServerState {
    server: Server,
    failures: u32,
}

/// Why a download failed.
enum Failure {
    /// This server failed. Another one may have the file.
    Server(String),
    /// The cache cannot be written, the deadline is exceeded, or the session has ended. Other servers are not tried.
    Local(String),
}

impl Budget {
    fn starting_at(now: Instant) -> Self {
        Self {
            period_started: now,
            max_file_bytes: MAX_FILE_BYTES,
            bytes: TenantShares::new(MAX_PERIOD_BYTES),
            time_ms: TenantShares::new(PERIOD_TIME_LIMIT_MS),
        }
    }
}

impl Downloader {
    pub(super) fn new(
        servers: Vec<Server>,
        transport: Box<dyn Transport>,
        cache: Cache,
        requests: Arc<Requests>,
    ) -> Self {
        let servers = servers.into_iter().map(|server| ServerState { server, failures: 0 }).collect();
        Self { servers, transport, cache, requests, budget: Budget::starting_at(Instant::now()) }
    }

    /// Downloads requested files until the queue is closed.
    pub(super) fn run(mut self) {
        while let Some(request) = self.requests.next() {
            let started = Instant::now();
            self.renew_budget(started);
            let status = self.fetch(&request);
            let elapsed_ms = usize::try_from(started.elapsed().as_millis()).unwrap_or(usize::MAX);
            self.budget.time_ms.spend(request.tenant, elapsed_ms);
            self.requests.complete(&request, status);
        }
    }

    /// Begins the next period, in which each server is tried again.
    fn renew_budget(&mut self, now: Instant) {
        if now.saturating_duration_since(self.budget.period_started) >= BUDGET_PERIOD {
            self.budget = Budget::starting_at(now);
            self.servers.iter_mut().for_each(|server| server.failures = 0);
        }
    }

    fn fetch(&mut self, request: &Request) -> FetchStatus {
        let left_of_tenant = Duration::from_millis(self.budget.time_ms.left(request.tenant) as u64);
        let deadline = Instant::now() + FILE_TIME_LIMIT.min(left_of_tenant);
        let mut status = FetchStatus::NotFound;
        for index in 0..self.servers.len() {
            match self.fetch_from(index, request, deadline) {
                Ok(true) => return FetchStatus::Found,
                Ok(false) => {}
                Err(Failure::Server(error)) => {
                    status = FetchStatus::Failed;
                    self.record_failure(index, &error);
                }
                Err(Failure::Local(error)) => {
                    log::warn!("failed to download the debug file of build id {}: {error}", request.id);
                    return FetchStatus::Failed;
                }
            }
        }
        status
    }

    fn record_failure(&mut self, index: usize, error: &str) {
        let Some(ServerState { server, failures }) = self.servers.get_mut(index) else { return };
        if *failures < MAX_SERVER_FAILURES {
            *failures += 1;
            log::warn!("the symbol server {} failed: {error}", server.url);
        }
    }

    /// Downloads a file from one server. Returns false when the server does not have it.
    fn fetch_from(&mut self, index: usize, request: &Request, deadline: Instant) -> Result<bool, Failure> {
        let Some(ServerState { server, failures }) = self.servers.get_mut(index) else { return Ok(false) };
        if *failures >= MAX_SERVER_FAILURES {
            return Err(Failure::Server(String::new()));
        }
        let Some((protocol, response)) = request_file(&*self.transport, server, &request.id, deadline)?
        else {
            return Ok(false);
        };
        log::info!("downloading symbols from {}", server.url);
        self.receive(request, response, deadline)?;
        // The first downloaded file shows the protocol of the server.
        if let Some(ServerState { server, .. }) = self.servers.get_mut(index) {
            server.protocols = vec![protocol];
        }
        Ok(true)
    }

    fn receive(&mut self, request: &Request, response: Response, deadline: Instant) -> Result<(), Failure> {
        let local =
            |error: io::Error| Failure::Local(format!("failed to write to the symbol cache: {error}"));
        let mut file = self.cache.create_partial(&request.id).map_err(local)?;
        let mut body = response.body;
        let mut download = Download {
            file_name: request.file_name.clone(),
            received_bytes: 0,
            total_bytes: response.length_bytes,
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            self.requests.set_download(download.clone());
            if self.requests.is_closed() {
                return Err(Failure::Local("the session has ended".to_owned()));
            }
            if Instant::now() >= deadline {
                return Err(Failure::Local("deadline exceeded".to_owned()));
            }
            if self.budget.bytes.left(request.tenant) == 0 {
                return Err(Failure::Local("the byte budget is used up".to_owned()));
            }
            let length = match body.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::Server(error.to_string())),
            };
            download.received_bytes += length as u64;
            self.budget.bytes.spend(request.tenant, length);
            if download.received_bytes > self.budget.max_file_bytes {
                return Err(Failure::Server(
                    "the response exceeds the largest size of a debug file".to_owned(),
                ));
            }
            file.write_all(chunk.get(..length).unwrap_or_default()).map_err(local)?;
        }
        let verified = file.finish().map_err(local)?;
        verified.map_err(|_| Failure::Server("the response is not the debug file of the build id".to_owned()))
    }
}

/// Requests a file with each protocol of a server. Returns the first protocol with which the server has the file.
fn request_file(
    transport: &dyn Transport,
    server: &Server,
    id: &BuildId,
    deadline: Instant,
) -> Result<Option<(ServerProtocol, Response)>, Failure> {
    for protocol in &server.protocols {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(Failure::Local("deadline exceeded".to_owned()));
        }
        match transport.get(&format!("{}/{}", server.url, protocol.path(id)), remaining) {
            Ok(response) => return Ok(Some((*protocol, response))),
            Err(TransportError::NotFound) => {}
            Err(TransportError::Failed(error)) => return Err(Failure::Server(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs};

    use object::elf::SHT_SYMTAB;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use tempfile::TempDir;

    use super::*;
    use profiler_processes::tenants::{Tenant, testing::two_tenants};

    const FIRST: &str = "http://first";
    const SECOND: &str = "http://second";

    /// The body of a test server's response, or its failure.
    #[derive(Clone, Debug)]
    enum TestResponse {
        Bytes(Vec<u8>),
        Endless,
        Truncated,
        Failed,
    }

    /// Servers without a network.
    #[derive(Debug, Default)]
    struct TestServers {
        responses: HashMap<String, TestResponse>,
        requested_urls: std::sync::Mutex<Vec<String>>,
    }

    impl TestServers {
        fn with(mut self, url: &str, protocol: ServerProtocol, response: TestResponse) -> Self {
            self.responses.insert(format!("{url}/{}", protocol.path(&id())), response);
            self
        }
    }

    impl Transport for Arc<TestServers> {
        fn get(&self, url: &str, _: Duration) -> Result<Response, TransportError> {
            self.requested_urls.lock().unwrap().push(url.to_owned());
            let body: Box<dyn Read + Send> = match self.responses.get(url).cloned() {
                None => return Err(TransportError::NotFound),
                Some(TestResponse::Failed) => return Err(TransportError::Failed("overloaded".to_owned())),
                Some(TestResponse::Bytes(bytes)) => Box::new(io::Cursor::new(bytes)),
                Some(TestResponse::Endless) => Box::new(io::repeat(0)),
                Some(TestResponse::Truncated) => Box::new(ClosedConnection),
            };
            Ok(Response { length_bytes: None, body })
        }
    }

    struct ClosedConnection;

    impl Read for ClosedConnection {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the connection was closed"))
        }
    }

    fn id() -> BuildId {
        BuildId::new(&[0xab, 0xcd]).unwrap()
    }

    fn debug_file(id: &[u8]) -> TestResponse {
        let symbols = [function("f", 0x1000, 8)];
        TestResponse::Bytes(TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &symbols).bytes())
    }

    fn matching_debug_file() -> TestResponse {
        debug_file(&[0xab, 0xcd])
    }

    /// A downloader from both servers, and the directory of its cache.
    fn downloader(servers: &Arc<TestServers>) -> (TempDir, Downloader) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::create(directory.path()).unwrap();
        let server = |url| Server::from_name(url, |_| None).unwrap();
        let transport = Box::new(Arc::clone(servers));
        let mut downloader =
            Downloader::new([server(FIRST), server(SECOND)].concat(), transport, cache, Arc::default());
        downloader.budget.max_file_bytes = 1 << 20;
        (directory, downloader)
    }

    fn fetch(servers: TestServers) -> (FetchStatus, bool) {
        let (directory, mut downloader) = downloader(&Arc::new(servers));
        let status = downloader.fetch(&request());
        let files: Vec<_> = fs::read_dir(directory.path().join("abcd")).into_iter().flatten().collect();
        assert!(files.len() <= 1);
        (status, directory.path().join("abcd/debuginfo").exists())
    }

    fn request() -> Request {
        request_of(None)
    }

    fn request_of(tenant: Tenant) -> Request {
        Request { id: id(), file_name: "libx.so".to_owned(), tenant }
    }

    #[test]
    fn a_file_is_found_by_either_protocol_on_any_server() {
        for server in [FIRST, SECOND] {
            for protocol in [ServerProtocol::Ssqp, ServerProtocol::Debuginfod] {
                let servers = TestServers::default().with(server, protocol, matching_debug_file());
                assert_eq!(fetch(servers), (FetchStatus::Found, true));
            }
        }
        assert_eq!(fetch(TestServers::default()), (FetchStatus::NotFound, false));
    }

    #[test]
    fn an_invalid_file_is_not_kept_and_the_next_server_is_tried() {
        let wrong = [debug_file(&[1, 2]), TestResponse::Bytes(b"<html>".to_vec()), TestResponse::Endless];
        for wrong in wrong.into_iter().chain([TestResponse::Truncated, TestResponse::Failed]) {
            let servers = TestServers::default().with(FIRST, ServerProtocol::Ssqp, wrong);
            let with_second = TestServers { responses: servers.responses.clone(), ..TestServers::default() };
            assert_eq!(fetch(servers), (FetchStatus::Failed, false));
            let with_second = with_second.with(SECOND, ServerProtocol::Debuginfod, matching_debug_file());
            assert_eq!(fetch(with_second), (FetchStatus::Found, true));
        }
    }

    #[test]
    fn only_the_protocol_of_the_first_downloaded_file_is_used_afterwards() {
        let servers =
            Arc::new(TestServers::default().with(FIRST, ServerProtocol::Debuginfod, matching_debug_file()));
        let (_directory, mut downloader) = downloader(&servers);
        assert_eq!(downloader.fetch(&request()), FetchStatus::Found);
        assert_eq!(servers.requested_urls.lock().unwrap().len(), 2);
        assert_eq!(downloader.fetch(&request()), FetchStatus::Found);
        assert_eq!(servers.requested_urls.lock().unwrap().len(), 3);
    }

    #[test]
    fn a_server_that_fails_repeatedly_is_not_used_in_the_period() {
        let servers = TestServers::default().with(FIRST, ServerProtocol::Ssqp, TestResponse::Failed).with(
            SECOND,
            ServerProtocol::Ssqp,
            TestResponse::Failed,
        );
        let servers = Arc::new(servers);
        let (_directory, mut downloader) = downloader(&servers);
        for _ in 0..2 * MAX_SERVER_FAILURES {
            assert_eq!(downloader.fetch(&request()), FetchStatus::Failed);
        }
        let requested = || servers.requested_urls.lock().unwrap().len();
        assert_eq!(requested(), 2 * MAX_SERVER_FAILURES as usize);
        let now = downloader.budget.period_started;
        for (passed, expected) in [(BUDGET_PERIOD / 2, 0), (BUDGET_PERIOD, 2)] {
            let before = requested();
            downloader.renew_budget(now + passed);
            downloader.fetch(&request());
            assert_eq!(requested() - before, expected, "after {passed:?}");
        }
    }

    #[test]
    fn all_files_of_a_period_share_a_budget_of_bytes_and_time() {
        let servers =
            Arc::new(TestServers::default().with(FIRST, ServerProtocol::Ssqp, matching_debug_file()));
        let (_directory, mut downloader) = downloader(&servers);
        downloader.budget.bytes = TenantShares::new(10);
        assert_eq!(downloader.fetch(&request()), FetchStatus::Failed);
        downloader.budget.bytes = TenantShares::new(MAX_PERIOD_BYTES);
        downloader.budget.time_ms = TenantShares::new(0);
        assert_eq!(downloader.fetch(&request()), FetchStatus::Failed);
        downloader.renew_budget(downloader.budget.period_started + BUDGET_PERIOD);
        assert_eq!(downloader.fetch(&request()), FetchStatus::Found);
    }

    #[test]
    fn a_tenant_that_used_up_its_bytes_and_time_takes_no_server_from_others() {
        let [hostile, honest] = two_tenants();
        let servers =
            Arc::new(TestServers::default().with(FIRST, ServerProtocol::Ssqp, matching_debug_file()));
        for spend in [
            (|budget, tenant| budget.bytes.spend(tenant, MAX_PERIOD_BYTES / 2)) as fn(&mut Budget, Tenant),
            |budget, tenant| budget.time_ms.spend(tenant, PERIOD_TIME_LIMIT_MS / 2),
        ] {
            let (_directory, mut downloader) = downloader(&servers);
            spend(&mut downloader.budget, hostile);
            for _ in 0..2 * MAX_SERVER_FAILURES {
                assert_eq!(downloader.fetch(&request_of(hostile)), FetchStatus::Failed);
            }
            assert_eq!(downloader.fetch(&request_of(honest)), FetchStatus::Found);
        }
    }

    #[test]
    fn nothing_is_downloaded_for_a_session_that_has_ended() {
        let servers =
            Arc::new(TestServers::default().with(FIRST, ServerProtocol::Ssqp, TestResponse::Endless));
        let (_directory, mut downloader) = downloader(&servers);
        downloader.budget.max_file_bytes = u64::MAX;
        downloader.requests.close();
        assert_eq!(downloader.fetch(&request()), FetchStatus::Failed);
        downloader.run();
    }
}
