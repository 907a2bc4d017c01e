//! xt matches and targets: name, revision, and a C structure's bytes.
//!
//! Structures are those of 64-bit machines in host order, padded to eight bytes (`XT_ALIGN`). Each function names its
//! header in `include/uapi/linux/netfilter/`.

mod matches;
mod targets;

pub use matches::{
    AddrTypeMatch, CtStates, INVALID, NEW, RELATED_ESTABLISHED, STATE_DNAT, SetDirection, address_type, comment,
    conntrack_state, mark, one_in, recent_check, recent_set, sctp, set, tcp, udp,
};
pub use targets::{
    dnat, masquerade_v4, masquerade_v6, redirect_v4, redirect_v6, reject_v4, reject_v6, reset_v4, reset_v6, set_xmark,
    snat_v4, snat_v6,
};

/// A match or target with `N` bytes of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XtExtension<const N: usize> {
    /// The name, such as `DNAT`.
    pub name: &'static str,
    /// The structure's revision.
    pub revision: u32,
    /// The structure's bytes.
    pub info: [u8; N],
}

impl<const N: usize> XtExtension<N> {
    pub(crate) fn new(name: &'static str, revision: u32) -> XtExtension<N> {
        XtExtension { name, revision, info: [0; N] }
    }

    pub(crate) fn at(mut self, offset: usize, bytes: &[u8]) -> XtExtension<N> {
        if let Some(room) = self.info.get_mut(offset..offset + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self
    }

    pub(crate) fn u16(self, offset: usize, value: u16) -> XtExtension<N> {
        self.at(offset, &value.to_ne_bytes())
    }

    pub(crate) fn u32(self, offset: usize, value: u32) -> XtExtension<N> {
        self.at(offset, &value.to_ne_bytes())
    }
}
