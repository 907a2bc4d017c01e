//! Which entries the kernel is to dump (since 5.8; `ctnetlink_alloc_filter` in net/netfilter/nf_conntrack_netlink.c). An older
//! kernel passes over the filter and dumps everything.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};
use netlink_packet_netfilter::conntrack::{ConntrackMessage, IPTuple, ProtoTuple, Protocol as Number, Tuple};

use crate::model::Protocol;
use crate::plan::flows::{Frontend, StaleFlowFilter};

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

/// With more filters than these one dump of their protocol is cheaper: each walks the whole table in the kernel (3.3 ms for an
/// empty one of 262,144 buckets, Linux 6.18).
const FEW: usize = 4;

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
    /// The dumps that show every flow which these judge, as few as will do.
    pub fn of(flows: &StaleFlowFilter) -> Vec<Filter> {
        let lost = flows.lost();
        let (some, all): (BTreeSet<_>, BTreeSet<_>) =
            flows.frontends().partition(|frontend| lost.contains_key(frontend));
        let servers: BTreeSet<_> =
            some.iter().flat_map(|key| lost.get(key).into_iter().flatten().map(|server| (key.0, *server))).collect();
        let to = |(protocol, frontend)| Filter::To(protocol, frontend);
        let from = |(protocol, server)| Filter::From(protocol, server);
        let mut filters: Vec<Filter> = all.into_iter().map(to).collect();
        if servers.len() < some.len() {
            filters.extend(servers.into_iter().map(from));
        } else {
            filters.extend(some.into_iter().map(to));
        }
        if filters.len() > FEW {
            let protocols: BTreeSet<Protocol> = flows.frontends().map(|(protocol, _)| protocol).collect();
            filters = protocols.into_iter().map(Filter::Protocol).collect();
        }
        filters
    }

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::frontends::Due;

    fn server(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 244, 0, host], 53))
    }

    fn filters(due: &[(u16, Due)]) -> Vec<Filter> {
        let key = |port: u16| (Protocol::Udp, Frontend::NodePort(port));
        let due: BTreeMap<_, _> = due.iter().map(|(port, due)| (key(*port), due.clone())).collect();
        Filter::of(&StaleFlowFilter::default().only(&due))
    }

    #[test]
    fn as_few_dumps_as_will_do() {
        let to = |port: u16| Filter::To(Protocol::Udp, Frontend::NodePort(port));
        let lost = |hosts: &[u8]| Due::To(hosts.iter().map(|host| server(*host)).collect());
        let from = |host: u8| Filter::From(Protocol::Udp, server(host));
        assert_eq!(filters(&[]), []);
        assert_eq!(filters(&[(1, Due::All), (2, Due::All)]), [to(1), to(2)]);
        assert_eq!(filters(&[(1, lost(&[7]))]), [to(1)], "where it makes no difference, what clients send to");
        assert_eq!(filters(&[(1, lost(&[7])), (2, lost(&[7]))]), [from(7)], "one server, of two frontends");
        assert_eq!(filters(&[(1, lost(&[7, 8])), (2, lost(&[7, 8]))]), [to(1), to(2)]);
        assert_eq!(filters(&[(1, Due::All), (2, lost(&[7])), (3, lost(&[7]))]), [to(1), from(7)]);
        let many: Vec<(u16, Due)> = (1..=5).map(|port| (port, Due::All)).collect();
        assert_eq!(filters(&many), [Filter::Protocol(Protocol::Udp)]);
        let many: Vec<(u16, Due)> = (1..=9).map(|port| (port, lost(&[7, 8]))).collect();
        assert_eq!(filters(&many), [from(7), from(8)]);
    }
}
