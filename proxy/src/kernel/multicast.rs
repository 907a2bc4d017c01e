//! Detects netlink announcements of the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nf_tables::netlink::{Message, Messages};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, recv, socket,
};

#[derive(Debug)]
pub struct MulticastListener(OwnedFd);

impl MulticastListener {
    /// Joins `groups`, of which bit 0 is group 1.
    pub fn of(protocol: SockProtocol, groups: u32) -> io::Result<MulticastListener> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(MulticastListener(fd))
    }

    pub fn listen(&self, groups: u32) -> io::Result<()> {
        let own: NetlinkAddr = getsockname(self.0.as_raw_fd())?;
        Ok(bind(self.0.as_raw_fd(), &NetlinkAddr::new(own.pid(), groups))?)
    }

    /// Empties the queue; returns whether it held a message, or overflowed (ENOBUFS).
    pub fn take(&self) -> bool {
        self.take_if(|_| true)
    }

    pub fn take_if(&self, concerns: impl Fn(&Message<'_>) -> bool) -> bool {
        let mut buffer = [0; 8192];
        let mut any = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::Error::EAGAIN) => return any,
                Ok(length) => any |= Messages::new(buffer.get(..length).unwrap_or_default()).any(|m| concerns(&m)),
                Err(nix::Error::ENOBUFS) => any = true,
                Err(nix::Error::EINTR) => {}
                Err(_) => return any,
            }
        }
    }
}

impl AsRawFd for MulticastListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
