//! What the kernel announces by netlink to whoever listens: only that there was something, never what.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

/// A socket that listens.
#[derive(Debug)]
pub struct Announcements(OwnedFd);

impl Announcements {
    /// Listens to multicast groups of this network namespace; `groups` has a bit for each, the lowest for number 1.
    ///
    /// # Errors
    /// When the kernel refuses the socket.
    pub fn of(protocol: SockProtocol, groups: u32) -> io::Result<Announcements> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Announcements(fd))
    }

    /// Takes everything that is queued; whether there was anything. A queue that ran over (ENOBUFS) had something, too.
    pub fn take(&self) -> bool {
        let mut buffer = [0; 8192];
        let mut any = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::Error::EAGAIN) => return any,
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => any = true,
                Err(_) => return any,
            }
        }
    }
}

impl AsRawFd for Announcements {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
