//! Notifies the service manager (sd_notify(3)): `READY=1` when sampling has begun, `STOPPING=1` at the end.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The connection to the service manager.
#[derive(Debug)]
pub(super) struct ServiceManager(Option<UnixDatagram>);

impl ServiceManager {
    /// The variable with the address of the manager's socket.
    pub(super) const VARIABLE: &str = "NOTIFY_SOCKET";

    /// Connects to the manager that started this process, if one waits for notifications. Connects before the sandbox, which
    /// refuses new sockets.
    pub(super) fn connect() -> Self {
        let Some(address) = env::var_os(Self::VARIABLE) else { return Self(None) };
        match connect(&address) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                log::warn!("failed to connect to the service manager at {}: {error}", Self::VARIABLE);
                Self(None)
            }
        }
    }

    /// Sampling has begun.
    pub(super) fn notify_ready(&self) {
        self.notify("READY=1");
    }

    /// The service ends.
    pub(super) fn notify_stopping(&self) {
        self.notify("STOPPING=1");
    }

    fn notify(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = rustix::io::write(socket, state.as_bytes())
        {
            log::warn!("failed to notify the service manager of {state}: {error}");
        }
    }
}

/// Connects to a path, or to a name in the abstract namespace, which begins with `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    socket.connect_addr(&address)?;
    // A manager that does not read must not stop the service.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_receives_each_state_as_a_datagram() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let service = ServiceManager(Some(connect(path.as_os_str()).unwrap()));
        service.notify_ready();
        service.notify_stopping();
        let mut buffer = [0; 64];
        for expected in ["READY=1", "STOPPING=1"] {
            let length = manager.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected.as_bytes());
        }
        assert!(connect(OsStr::new("@no-such-manager-of-the-tests")).is_err());
    }
}
