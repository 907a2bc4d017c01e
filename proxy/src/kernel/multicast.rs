//! What the kernel announces by netlink to all listeners: only that there was something, never what.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, recv, socket,
};

/// A socket that listens.
#[derive(Debug)]
pub struct MulticastListener(OwnedFd);

impl MulticastListener {
    /// Listens to multicast groups of this network namespace; `groups` has a bit for each, the lowest for number 1.
    ///
    /// # Errors
    /// When the kernel refuses the socket.
    pub fn of(protocol: SockProtocol, groups: u32) -> io::Result<MulticastListener> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(MulticastListener(fd))
    }

    /// Listens to these groups from now on, and to no others.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn listen(&self, groups: u32) -> io::Result<()> {
        let own: NetlinkAddr = getsockname(self.0.as_raw_fd())?;
        Ok(bind(self.0.as_raw_fd(), &NetlinkAddr::new(own.pid(), groups))?)
    }

    /// Takes everything that is queued; whether there was anything. A queue that ran over (ENOBUFS) had something, too.
    pub fn take(&self) -> bool {
        self.take_if(|_| true)
    }

    /// The same; whether any message, with its header, was one that `concerns` us.
    pub fn take_if(&self, concerns: impl Fn(&[u8]) -> bool) -> bool {
        let mut buffer = [0; 8192];
        let mut any = false;
        loop {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::Error::EAGAIN) => return any,
                Ok(length) => any |= messages(buffer.get(..length).unwrap_or_default()).any(&concerns),
                Err(nix::Error::ENOBUFS) => any = true,
                Err(nix::Error::EINTR) => {}
                Err(_) => return any,
            }
        }
    }
}

/// The messages of a datagram: each begins with its length (`struct nlmsghdr`) and is padded to four bytes. One that was cut
/// off is the last.
fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
        let length = usize::try_from(length).ok().filter(|length| *length >= 16)?;
        let message = rest.get(..length.min(rest.len()))?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

impl AsRawFd for MulticastListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Reads these bytes as announcements, for [`crate::fuzzing`].
pub(crate) fn fuzz(datagram: &[u8], message: impl Fn(&[u8])) {
    messages(datagram).for_each(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_cut_into_messages() {
        let message = |length: u32| [&length.to_ne_bytes()[..], &[7; 12], &[1; 4]].concat();
        let datagram = [&message(18)[..18], &[0, 0], &message(20)[..], &message(400)[..]].concat();
        assert_eq!(messages(&datagram).map(<[u8]>::len).collect::<Vec<_>>(), [18, 20, 20], "the last is cut off");
        assert_eq!(messages(&[3, 0, 0, 0, 9]).count(), 0);
    }
}
