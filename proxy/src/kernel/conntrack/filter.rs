//! Filters of conntrack dumps (since Linux 5.8; `ctnetlink_alloc_filter` in net/netfilter/nf_conntrack_netlink.c).

use std::net::{IpAddr, SocketAddr};

use nf_tables::netlink::AttributeWriter;

use super::{
    CTA_IP_V4_DST, CTA_IP_V4_SRC, CTA_PROTO_DST_PORT, CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_TUPLE_IP, CTA_TUPLE_ORIG,
    CTA_TUPLE_PROTO, CTA_TUPLE_REPLY,
};
use crate::model::{Frontend, Protocol};

/// `include/uapi/linux/netfilter/nfnetlink_conntrack.h`.
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// `CTA_FILTER_F_*` (net/netfilter/nf_internals.h).
const IP_SRC: u32 = 1;
const IP_DST: u32 = 1 << 1;
const PROTO_NUM: u32 = 1 << 3;
const PROTO_SRC_PORT: u32 = 1 << 4;
const PROTO_DST_PORT: u32 = 1 << 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowFilter {
    None,
    Protocol(Protocol),
    To(Protocol, Frontend),
    /// Flows that a server answers.
    From(Protocol, SocketAddr),
}

impl FlowFilter {
    pub(super) fn write(&self, writer: &mut AttributeWriter) {
        let (protocol, address, port) = match self {
            FlowFilter::None => return,
            FlowFilter::Protocol(protocol) => (protocol, None, None),
            FlowFilter::To(protocol, Frontend::Address(address)) => {
                (protocol, Some(address.ip()), Some(address.port()))
            }
            FlowFilter::To(protocol, Frontend::NodePort(port)) => (protocol, None, Some(*port)),
            FlowFilter::From(protocol, server) => (protocol, Some(server.ip()), Some(server.port())),
        };
        // The server is the source of the reply tuple.
        let (tuple, tuple_flags) = match self {
            FlowFilter::From(..) => (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS),
            _ => (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS),
        };
        let [(address_kind, address_flag), (port_kind, port_flag)] = match self {
            FlowFilter::From(..) => [(CTA_IP_V4_SRC, IP_SRC), (CTA_PROTO_SRC_PORT, PROTO_SRC_PORT)],
            _ => [(CTA_IP_V4_DST, IP_DST), (CTA_PROTO_DST_PORT, PROTO_DST_PORT)],
        };
        let mut flags = PROTO_NUM;
        writer.nest(tuple, |writer| {
            // The kernel inverts the comparison of IPv6 addresses (`ctnetlink_filter_match_tuple`, seen with 6.18).
            if let Some(IpAddr::V4(address)) = address {
                flags |= address_flag;
                writer.nest(CTA_TUPLE_IP, |writer| writer.put(address_kind, &address.octets()));
            }
            writer.nest(CTA_TUPLE_PROTO, |writer| {
                writer.put(CTA_PROTO_NUM, &[protocol.number()]);
                if let Some(port) = port {
                    flags |= port_flag;
                    writer.put(port_kind, &port.to_be_bytes());
                }
            });
        });
        writer.nest(CTA_FILTER, |writer| writer.put(tuple_flags, &flags.to_ne_bytes()));
    }
}
