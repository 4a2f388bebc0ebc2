//! Tests of what threads wait for beyond their processes.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::{
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
};

use super::*;

/// Lines of `net/tcp` and `net/tcp6` on a little-endian machine: a listener, both ends of a connection to it, one to another
/// machine, one that is not accepted.
const SOCKETS: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:1538 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1
   2: 0100007F:C000 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   3: 0200000A:C001 0300000A:0050 01 00000000:00000000 00:00000000 00000000     0        0 103 1 0 20 4 30 10 -1
   4: 0100007F:1538 0100007F:C002 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   0: 0000000000000000FFFF00000100007F:C002 0000000000000000FFFF00000100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0 20 4 30 10 -1
";

#[test]
fn the_other_end_has_the_same_addresses_in_reverse() {
    let sockets: Vec<_> = SOCKETS.lines().filter_map(parse_socket).collect();
    assert_eq!(sockets.len(), 6);
    let end = |inode| {
        let end = other_end(&sockets, inode)?;
        Some((end.role, end.address?.to_string(), end.inode))
    };
    let server = "127.0.0.1:5432".to_owned();
    assert_eq!(end(102), Some((PartnerRole::Service, server.clone(), Some(101))));
    assert_eq!(end(101), Some((PartnerRole::Client, "127.0.0.1:49152".to_owned(), Some(102))));
    assert_eq!(end(103), Some((PartnerRole::Service, "10.0.0.3:80".to_owned(), None)));
    assert_eq!(end(104), Some((PartnerRole::Service, server, Some(100))), "the listener");
    assert_eq!((end(100), end(7)), (None, None));
}

#[test]
fn malformed_lines_have_no_socket() {
    for line in [
        "",
        "0:",
        "0: 0100007F 0100007F:1 01",
        "0: 0100007F:1 xx:1 01 a b c d e f 7",
        "0: 01:1 02:2 01 a b c d e 7",
    ] {
        assert_eq!(parse_socket(line), None, "{line}");
    }
}

#[test]
fn a_system_call_waits_for_one_descriptor() {
    let call = |text| parse_call(text);
    assert_eq!(call("45 0x7 0x7f00 0x1 0x0 0x0 0x0 0x1 0x1\n"), Some(Awaited::Descriptor(7)));
    assert_eq!(call("0 0xffffffff00000005 0x7f 0x1 0x0 0x0 0x0 0x1 0x1\n"), Some(Awaited::Descriptor(5)));
    let polled = Some(Awaited::Polled(RuntimeAddress(0x7f00)));
    assert_eq!(call("7 0x7f00 0x1 0x3e8 0x0 0x0 0x0 0x1 0x1\n"), polled);
    for other in
        ["7 0x7f00 0x2 0x3e8\n", "202 0x10 0x80 0x2\n", "running\n", "-1 0x7ffe 0x7f84\n", "45 0x7", ""]
    {
        assert_eq!(call(other), None, "{other}");
    }
}

#[test]
fn a_mount_has_a_device_unless_its_file_system_is_that_of_the_kernel() {
    let mounts =
        "25 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n26 25 0:5 / /dev rw - devtmpfs udev rw\n";
    assert_eq!(device_of_mount(mounts, "25").as_deref(), Some("/dev/vda1"));
    assert_eq!((device_of_mount(mounts, "26"), device_of_mount(mounts, "2")), (None, None));
}

/// The partner of a thread of this process, once it has one.
fn await_partner(tid: Tid) -> WaitPartner {
    let (own, proc, began) = (Pid::own(), ProcFs::live(), Instant::now());
    loop {
        let partners = proc.wait_partners(&[(own, tid)]).unwrap_or_default();
        if let [partner] = &partners[..]
            && partner.pid.is_some()
        {
            return partner.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{partners:?}");
    }
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
}

/// The partner of a thread while it executes a function, which `end` ends.
fn partner_in(function: impl FnOnce() + Send, end: impl FnOnce()) -> WaitPartner {
    let (tids, received) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            tids.send(own_tid()).unwrap();
            function();
        });
        let partner = await_partner(received.recv().unwrap());
        end();
        partner
    })
}

#[test]
fn a_thread_that_reads_a_connection_waits_for_its_process() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let own = Some(Pid::own());
    let read = |mut stream: &TcpStream| assert_eq!(stream.read(&mut [0; 2]).unwrap(), 1);
    let partner = partner_in(|| read(&client), || (&accepted).write_all(b" ").unwrap());
    assert_eq!((partner.role, partner.pid), (PartnerRole::Service, own));
    assert!(partner.serves, "it has the listener");
    let partner = partner_in(|| read(&accepted), || (&client).write_all(b" ").unwrap());
    assert_eq!((partner.role, partner.pid), (PartnerRole::Client, own));
}

/// One that takes work from a queue and listens for those that examine it: more of its threads wait for services than it has clients.
#[test]
fn a_process_without_a_client_for_each_wait_serves_no_others() {
    let (service, listener) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let connect = |listener: &TcpListener| {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let (waits, _of_service) = connect(&service);
    let inherited = |socket: std::os::fd::OwnedFd| Stdio::from(socket);
    let serves = |output: Stdio, error: Stdio| {
        let input = inherited(waits.try_clone().unwrap().into());
        let mut reader = Command::new("cat").stdin(input).stdout(output).stderr(error).spawn().unwrap();
        let (proc, began, id) = (ProcFs::live(), Instant::now(), Pid(reader.id()));
        let serves = loop {
            let partners = proc.wait_partners(&[(id, Tid::leader_of(id))]).unwrap_or_default();
            if let [partner] = &partners[..] {
                break partner.serves;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it does not wait");
        };
        reader.kill().unwrap();
        reader.wait().unwrap();
        serves
    };
    let listening = || inherited(listener.try_clone().unwrap().into());
    assert!(!serves(listening(), Stdio::null()));
    let (_client, accepted) = connect(&listener);
    assert!(serves(listening(), inherited(accepted.into())));
}

/// A client that listens nowhere.
#[test]
fn a_process_without_a_socket_that_listens_serves_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let input = Stdio::from(std::os::fd::OwnedFd::from(client));
    let mut reader = Command::new("cat").stdin(input).stdout(Stdio::null()).spawn().unwrap();
    let (proc, began, id) = (ProcFs::live(), Instant::now(), Pid(reader.id()));
    let partner = loop {
        let partners = proc.wait_partners(&[(id, Tid::leader_of(id))]).unwrap_or_default();
        if let [partner] = &partners[..] {
            break partner.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it does not wait");
    };
    drop(accepted);
    reader.wait().unwrap();
    assert_eq!((partner.role, partner.serves), (PartnerRole::Service, false));
}

#[test]
fn a_thread_that_reads_a_unix_socket_waits_for_the_process_at_the_other_end() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let client = UnixStream::connect(folder.path().join("socket")).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let own = Some(Pid::own());
    let read = |mut stream: &UnixStream| assert_eq!(stream.read(&mut [0; 2]).unwrap(), 1);
    let partner = partner_in(|| read(&client), || (&accepted).write_all(b" ").unwrap());
    assert_eq!((partner.role, partner.pid), (PartnerRole::Service, own));
    let partner = partner_in(|| read(&accepted), || (&client).write_all(b" ").unwrap());
    assert_eq!((partner.role, partner.pid), (PartnerRole::Client, own));
}

/// A process that sleeps, with pipes as standard input and output.
fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The partner of a thread that waits for one of the pipes of a process until it is killed, and the id of the process.
fn partner_at_pipes(wait: impl FnOnce(ChildStdin, ChildStdout) + Send) -> (WaitPartner, Pid) {
    let mut child = sleeper();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let partner = partner_in(move || wait(input, output), || child.kill().unwrap());
    child.wait().unwrap();
    (partner, Pid(child.id()))
}

#[test]
fn a_thread_that_reads_or_writes_a_pipe_waits_for_the_process_at_its_other_end() {
    let (read, reader) = partner_at_pipes(|_input, mut output| {
        assert_eq!(output.read(&mut [0]).unwrap(), 0);
    });
    let (written, writer) = partner_at_pipes(|mut input, _output| {
        let more_than_a_pipe_holds = vec![0; 1 << 20];
        assert!(input.write_all(&more_than_a_pipe_holds).is_err());
    });
    for (partner, id) in [(read, reader), (written, writer)] {
        let found = (partner.role, partner.name.as_str(), partner.pid);
        assert_eq!(found, (PartnerRole::Child, "sleep", Some(id)));
    }
}

/// A shell has the ends of pipes of the program that it runs.
#[test]
fn a_thread_that_reads_what_a_program_of_a_shell_writes_waits_for_the_program() {
    let mut shell = Command::new("sh");
    let mut shell =
        shell.args(["-c", "sleep 600; true"]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let (proc, began) = (ProcFs::live(), Instant::now());
    let children = format!("{0}/task/{0}/children", shell.id());
    let program = loop {
        let text = proc.entries().read(Path::new(&children), MAX_SHORT_BYTES).unwrap_or_default();
        let child = String::from_utf8_lossy(&text).trim().parse().map(Pid);
        let comm = child.as_ref().map(|pid| proc.entries().read(&PathBuf::from(format!("{pid}/comm")), 16));
        if matches!(comm, Ok(Ok(comm)) if comm == b"sleep\n") {
            break child.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the shell starts no program");
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut output = shell.stdout.take().unwrap();
    let group = rustix::process::Pid::from_child(&shell);
    let partner = partner_in(
        move || assert_eq!(output.read(&mut [0]).unwrap(), 0),
        || rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap(),
    );
    shell.wait().unwrap();
    let found = (partner.role, partner.name.as_str(), partner.pid);
    assert_eq!(found, (PartnerRole::Child, "sleep", Some(program)));
}

#[test]
fn a_child_that_has_ended_since_its_pipe_was_found_is_known() {
    let (own, child, shell) = (Pid(7), Pid(100), Pid(99));
    let pipe = Pipe { pid: own, tid: Tid(8), inode: 4711, other: PipeEnd::Writes };
    let owner =
        |name: &str, ancestors: &[Pid]| PipeOwner { name: name.to_owned(), ancestors: ancestors.to_vec() };
    let of_pipe = [(child, owner("converter", &[shell, own, Pid(1)])), (shell, owner("sh", &[own, Pid(1)]))];
    let pipes = BTreeMap::from([((4711, PipeEnd::Writes), BTreeMap::from(of_pipe))]);
    let owners = |is_complete| Owners { pipes: pipes.clone(), is_complete, ..Owners::default() };
    let partner = Search::process_of_pipe(&pipe, &owners(true)).unwrap();
    let found = (partner.role, partner.name.as_str(), partner.pid);
    assert_eq!(found, (PartnerRole::Child, "converter", Some(child)));
    assert_eq!(
        Search::process_of_pipe(&pipe, &owners(false)),
        None,
        "another process can have the pipe as well"
    );
}

#[test]
fn children_are_examined_before_all_other_processes() {
    let mut child = sleeper();
    let (entries, own) = (ProcFs::live().entries().clone(), Pid::own());
    let search = Search { entries: &entries, deadline: Instant::now() + MAX_TIME };
    let started = Pid(child.id());
    let pids = search.processes(own, &BTreeSet::from([started]));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pids[..2], [started, own]);
}

/// A name server that does not answer, as `getaddrinfo` waits for it.
#[test]
fn a_thread_that_waits_for_a_datagram_waits_for_the_process_with_the_other_address() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let own_address = client.local_addr().unwrap();
    let partner = partner_in(
        || assert_eq!(client.recv(&mut [0]).unwrap(), 1),
        || {
            server.send_to(b"x", own_address).unwrap();
        },
    );
    assert_eq!((partner.role, partner.pid), (PartnerRole::Service, Some(Pid::own())));
}

/// A program that starts `sleep` and waits for its end.
const STARTS_SLEEP: &str = "my $child = fork // die; exec('sleep', '600') unless $child; waitpid($child, 0)";

/// The parent is a process of its own: other tests start children of this one.
#[test]
fn a_thread_that_waits_for_a_child_process_has_it_as_partner() {
    let mut parent = Command::new("perl").args(["-e", STARTS_SLEEP]).process_group(0).spawn().unwrap();
    let (proc, began, threads) = (ProcFs::live(), Instant::now(), [(Pid(parent.id()), Tid(parent.id()))]);
    let partner = loop {
        match &proc.wait_partners(&threads).unwrap_or_default()[..] {
            // Until it executes `sleep`, the child has the name of its parent.
            [partner] if partner.name == "sleep" => break partner.clone(),
            others => assert!(began.elapsed() < Duration::from_secs(60), "{others:?}"),
        }
    };
    let children = format!("{0}/task/{0}/children", parent.id());
    let children = proc.entries().read(Path::new(&children), MAX_SHORT_BYTES).unwrap();
    let group = rustix::process::Pid::from_child(&parent);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    parent.wait().unwrap();
    let only = String::from_utf8_lossy(&children).trim().parse().ok().map(Pid);
    assert_eq!((partner.role, partner.pid), (PartnerRole::Child, only));
}
