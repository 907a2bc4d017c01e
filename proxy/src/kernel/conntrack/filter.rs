//! Which entries the kernel is to dump (since 5.8; `ctnetlink_alloc_filter` in net/netfilter/nf_conntrack_netlink.c). An older
//! kernel passes over the filter and dumps everything.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::conntrack::{ConntrackMessage, IPTuple, ProtoTuple, Protocol as Number, Tuple};

use crate::model::Protocol;
use crate::plan::flows::{Frontend, StaleFlowFilter};

/// `IPCTNL_MSG_CT_GET`, `CTA_TUPLE_ORIG`, `CTA_FILTER`, `CTA_FILTER_ORIG_FLAGS`
/// (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
const IPCTNL_MSG_CT_GET: u8 = 1;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
/// Which parts of the original direction must be equal (`CTA_FILTER_F_*` in net/netfilter/nf_internals.h).
const IP_DST: u32 = 1 << 1;
const PROTO_NUM: u32 = 1 << 3;
const PROTO_DST_PORT: u32 = 1 << 5;

/// With more frontends than these one dump of their protocol is cheaper: each walks the whole table in the kernel.
const FEW: usize = 4;

/// What a dump is narrowed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    protocol: Option<Protocol>,
    frontend: Option<Frontend>,
}

impl Filter {
    /// The whole table.
    pub const NONE: Filter = Filter { protocol: None, frontend: None };

    /// The dumps that show every flow which these judge.
    pub fn of(flows: &StaleFlowFilter) -> Vec<Filter> {
        let frontends: BTreeSet<_> = flows.frontends().collect();
        if frontends.len() <= FEW {
            let one = |(protocol, frontend)| Filter { protocol: Some(protocol), frontend: Some(frontend) };
            return frontends.into_iter().map(one).collect();
        }
        let protocols: BTreeSet<Protocol> = frontends.into_iter().map(|(protocol, _)| protocol).collect();
        protocols.into_iter().map(|protocol| Filter { protocol: Some(protocol), frontend: None }).collect()
    }

    /// One protocol, and one of its frontends if any is named.
    pub fn to(protocol: Protocol, frontend: Option<Frontend>) -> Filter {
        Filter { protocol: Some(protocol), frontend }
    }

    /// The request for the dump.
    pub(super) fn request(&self) -> ConntrackMessage {
        let number = match self.protocol {
            None => return ConntrackMessage::Get(Vec::new()),
            Some(Protocol::Tcp) => Number::Tcp,
            Some(Protocol::Udp) => Number::Udp,
            Some(Protocol::Sctp) => Number::Sctp,
        };
        let (address, port) = match self.frontend {
            Some(Frontend::Address(address)) => (Some(address.ip()), Some(address.port())),
            Some(Frontend::NodePort(port)) => (None, Some(port)),
            None => (None, None),
        };
        let (mut flags, mut parts, mut tuple) = (PROTO_NUM, vec![ProtoTuple::Protocol(number)], Vec::new());
        // Not with IPv6, whose addresses the kernel compares the wrong way round: `!ipv6_addr_cmp()` in
        // `ctnetlink_filter_match_tuple`, seen with 6.18.
        if let Some(address) = address.filter(IpAddr::is_ipv4) {
            flags |= IP_DST;
            tuple.push(Tuple::Ip(vec![IPTuple::DestinationAddress(address)]));
        }
        if let Some(port) = port {
            flags |= PROTO_DST_PORT;
            parts.push(ProtoTuple::DestinationPort(port));
        }
        tuple.push(Tuple::Proto(parts));
        let flags = [DefaultNla::new(CTA_FILTER_ORIG_FLAGS, flags.to_ne_bytes().to_vec())];
        // By number: the crate knows no filter, and marks none of its unknown attributes as nested.
        let attributes = vec![nested(CTA_TUPLE_ORIG, &tuple[..]), nested(CTA_FILTER, &flags[..])];
        ConntrackMessage::Other { message_type: IPCTNL_MSG_CT_GET, attributes }
    }
}

fn nested(kind: u16, inner: impl Emitable) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}
