//! Which entries the kernel is to dump (since 5.8; `ctnetlink_alloc_filter` in net/netfilter/nf_conntrack_netlink.c). An older
//! kernel passes over the filter and dumps everything.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::conntrack::{ConntrackMessage, IPTuple, ProtoTuple, Protocol as Number, Tuple};

use crate::model::{Frontend, Protocol};

/// `IPCTNL_MSG_CT_GET`, `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_FILTER`, `CTA_FILTER_ORIG_FLAGS`, `CTA_FILTER_REPLY_FLAGS`
/// (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
const IPCTNL_MSG_CT_GET: u8 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// Which parts of a direction must be equal (`CTA_FILTER_F_*` in net/netfilter/nf_internals.h).
const IP_SRC: u32 = 1;
const IP_DST: u32 = 1 << 1;
const PROTO_NUM: u32 = 1 << 3;
const PROTO_SRC_PORT: u32 = 1 << 4;
const PROTO_DST_PORT: u32 = 1 << 5;

/// What a dump is narrowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Nothing: the whole table.
    None,
    /// The flows of a protocol.
    Protocol(Protocol),
    /// Those whose clients send to a frontend.
    To(Protocol, Frontend),
    /// Those that a server answers, whatever its clients send to.
    From(Protocol, SocketAddr),
}

impl Filter {
    /// The request for the dump.
    pub(super) fn request(&self) -> ConntrackMessage {
        let (protocol, address, port) = match self {
            Filter::None => return ConntrackMessage::Get(Vec::new()),
            Filter::Protocol(protocol) => (protocol, None, None),
            Filter::To(protocol, Frontend::Address(address)) => (protocol, Some(address.ip()), Some(address.port())),
            Filter::To(protocol, Frontend::NodePort(port)) => (protocol, None, Some(*port)),
            Filter::From(protocol, server) => (protocol, Some(server.ip()), Some(server.port())),
        };
        let number = match protocol {
            Protocol::Tcp => Number::Tcp,
            Protocol::Udp => Number::Udp,
            Protocol::Sctp => Number::Sctp,
        };
        let from = matches!(self, Filter::From(..));
        let (mut flags, mut parts, mut tuple) = (PROTO_NUM, vec![ProtoTuple::Protocol(number)], Vec::new());
        // Not with IPv6, whose addresses the kernel compares the wrong way round: `!ipv6_addr_cmp()` in
        // `ctnetlink_filter_match_tuple`, seen with 6.18.
        if let Some(address) = address.filter(IpAddr::is_ipv4) {
            flags |= if from { IP_SRC } else { IP_DST };
            tuple.push(Tuple::Ip(vec![if from {
                IPTuple::SourceAddress(address)
            } else {
                IPTuple::DestinationAddress(address)
            }]));
        }
        if let Some(port) = port {
            flags |= if from { PROTO_SRC_PORT } else { PROTO_DST_PORT };
            parts.push(if from { ProtoTuple::SourcePort(port) } else { ProtoTuple::DestinationPort(port) });
        }
        tuple.push(Tuple::Proto(parts));
        let (tuple_of, flags_of) =
            if from { (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS) } else { (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS) };
        let flags = [DefaultNla::new(flags_of, flags.to_ne_bytes().to_vec())];
        // By number: the crate knows no filter, and marks none of its unknown attributes as nested.
        let attributes = vec![nested(tuple_of, &tuple[..]), nested(CTA_FILTER, &flags[..])];
        ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_GET, attributes }
    }
}

fn nested(kind: u16, inner: impl Emitable) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}
