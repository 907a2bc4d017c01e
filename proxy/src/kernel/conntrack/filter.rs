//! Which entries the kernel is to dump (since 5.8; `ctnetlink_alloc_filter` in net/netfilter/nf_conntrack_netlink.c). An older
//! kernel passes over the filter and dumps everything.

use std::collections::BTreeSet;

use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use netlink_packet_netfilter::conntrack::{ConntrackAttribute, IPTuple, ProtoTuple, Protocol as Number, Tuple};

use crate::model::Protocol;
use crate::plan::flows::{Flows, Frontend};

/// `CTA_FILTER`, `CTA_FILTER_ORIG_FLAGS` (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).
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
    pub fn of(flows: &Flows) -> Vec<Filter> {
        let frontends: BTreeSet<_> = flows.frontends().collect();
        if frontends.len() <= FEW {
            let one = |(protocol, frontend)| Filter { protocol: Some(protocol), frontend: Some(frontend) };
            return frontends.into_iter().map(one).collect();
        }
        let protocols: BTreeSet<Protocol> = frontends.into_iter().map(|(protocol, _)| protocol).collect();
        protocols.into_iter().map(|protocol| Filter { protocol: Some(protocol), frontend: None }).collect()
    }

    /// As a request for a dump has it.
    pub(super) fn attributes(&self) -> Vec<ConntrackAttribute> {
        let number = match self.protocol {
            None => return Vec::new(),
            Some(Protocol::Tcp) => Number::Tcp,
            Some(Protocol::Udp) => Number::Udp,
            Some(Protocol::Sctp) => Number::Sctp,
        };
        let (address, port) = match self.frontend {
            Some(Frontend::Address(address)) => (Some(address.ip()), Some(address.port())),
            Some(Frontend::NodePort(port)) => (None, Some(port)),
            None => (None, None),
        };
        let mut flags = PROTO_NUM;
        let mut parts = vec![ProtoTuple::Protocol(number)];
        let mut tuple = Vec::new();
        if let Some(address) = address {
            flags |= IP_DST;
            tuple.push(Tuple::Ip(vec![IPTuple::DestinationAddress(address)]));
        }
        if let Some(port) = port {
            flags |= PROTO_DST_PORT;
            parts.push(ProtoTuple::DestinationPort(port));
        }
        tuple.push(Tuple::Proto(parts));
        // One nested attribute of a length of eight: `struct nlattr`, then the flags in the host's byte order.
        let mut nested = [8u16.to_ne_bytes(), CTA_FILTER_ORIG_FLAGS.to_ne_bytes()].concat();
        nested.extend(flags.to_ne_bytes());
        let filter = DefaultNla::new(CTA_FILTER | NLA_F_NESTED, nested);
        vec![ConntrackAttribute::CtaTupleOrig(tuple), ConntrackAttribute::Other(filter)]
    }
}
