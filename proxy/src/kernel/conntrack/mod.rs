//! conntrack entries by netlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

mod filter;
mod scan;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nf_tables::netlink::{AttributeWriter, Attributes, Message, MessageContent, Messages, header, patch_length};
use nix::libc;

use super::netlink::{self, NLM_F_DUMP, NLM_F_REQUEST, ip_address};
use crate::model::{Family, Flow, Protocol};
pub use filter::FlowFilter;
use scan::ConntrackScan;
pub use scan::{DELETIONS_PER_DATAGRAM, ENTRIES_PER_STEP, ScanStep};

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_…`.
const CT_NEW: u16 = 1 << 8;
const CT_GET: u16 = 1 << 8 | 1;
const CT_DELETE: u16 = 1 << 8 | 2;
const NFGENMSG: usize = 4;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_ID: u16 = 12;
/// Only entries outside the default zone have this attribute.
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
/// `IPS_DST_NAT` (`include/uapi/linux/netfilter/nf_conntrack_common.h`).
const IPS_DST_NAT: u32 = 1 << 5;
/// `TCP_CONNTRACK_TIME_WAIT` and `TCP_CONNTRACK_CLOSE` (`include/uapi/linux/netfilter/nf_conntrack_tcp.h`).
const CLOSED: [u8; 2] = [7, 8];

pub trait Conntrack {
    /// Runs one step of a scan, which dumps once per filter. A new scan begins with `anew`, and after an error.
    fn delete_some(
        &mut self,
        family: Family,
        filters: &[FlowFilter],
        anew: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<ScanStep>;

    fn delete(&mut self, family: Family, filters: &[FlowFilter], stale: &dyn Fn(&Flow) -> bool) -> io::Result<usize> {
        let mut step = self.delete_some(family, filters, true, stale)?;
        let mut deleted = step.deleted;
        while !step.is_last {
            step = self.delete_some(family, filters, false, stale)?;
            deleted += step.deleted;
        }
        Ok(deleted)
    }

    fn clients(&mut self, family: Family) -> io::Result<BTreeSet<IpAddr>>;
}

/// Keeps its socket open: closing waits until the kernel has freed the objects of the last nf_tables transaction
/// (`nft_rcv_nl_event`), 5 to 8 ms after a sync.
#[derive(Debug, Default)]
pub struct ConntrackNetlink {
    socket: Option<Socket>,
    deletions: Option<Socket>,
    scan: Option<ConntrackScan>,
}

impl ConntrackNetlink {
    /// Drops a socket with an unfinished dump, because it accepts no other request.
    fn abort_scan(&mut self) {
        if self.scan.take().is_some_and(|scan| scan.is_dumping) {
            self.socket = None;
        }
    }

    /// Drops the socket after a failure: it may hold the rest of an answer.
    fn with_socket<T>(&mut self, work: impl FnOnce(&Socket) -> io::Result<T>) -> io::Result<T> {
        let socket = self.socket.take().map_or_else(connect, Ok)?;
        let result = work(&socket)?;
        self.socket = Some(socket);
        Ok(result)
    }
}

impl Conntrack for ConntrackNetlink {
    fn delete_some(
        &mut self,
        family: Family,
        filters: &[FlowFilter],
        anew: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> io::Result<ScanStep> {
        if anew {
            self.abort_scan();
        }
        let mut scan = self.scan.take().unwrap_or_else(|| ConntrackScan::new(family, filters));
        let mut deletions = self.deletions.take();
        let step = self.with_socket(|socket| scan.step(socket, &mut deletions, stale))?;
        self.deletions = deletions;
        self.scan = Some(scan).filter(|_| !step.is_last);
        Ok(step)
    }

    fn clients(&mut self, family: Family) -> io::Result<BTreeSet<IpAddr>> {
        self.abort_scan();
        let mut found = BTreeSet::new();
        self.with_socket(|socket| {
            socket.send(&request(CT_GET, NLM_F_DUMP, family, |_| {}), 0)?;
            while !receive(socket, 0, |attributes| {
                if !is_closed(attributes) {
                    found.extend(read_flow(attributes).map(|flow| flow.client));
                }
            })? {}
            Ok(())
        })?;
        Ok(found)
    }
}

fn connect() -> io::Result<Socket> {
    netlink::connect(NETLINK_NETFILTER)
}

fn request(kind: u16, flags: u16, family: Family, fill: impl FnOnce(&mut AttributeWriter)) -> Vec<u8> {
    let family = match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    };
    let mut attributes = AttributeWriter::default();
    fill(&mut attributes);
    let mut message = [&header(kind, NLM_F_REQUEST | flags, 0)[..], &[family, 0, 0, 0], attributes.bytes()].concat();
    patch_length(&mut message, 0);
    message
}

/// Returns whether the answer is complete.
fn receive(socket: &Socket, flags: i32, mut entry: impl FnMut(Attributes<'_>)) -> io::Result<bool> {
    let mut end = None;
    netlink::receive(socket, flags, |message| match message.content() {
        MessageContent::Answer { code, .. } => end = end.or(Some(code)),
        MessageContent::Done { .. } => end = end.or(Some(0)),
        MessageContent::Payload(_) => entry_of(&message).into_iter().for_each(&mut entry),
    })?;
    match end {
        None => Ok(false),
        Some(0) => Ok(true),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
    }
}

fn entry_of<'a>(message: &Message<'a>) -> Option<Attributes<'a>> {
    (message.kind == CT_NEW).then(|| Attributes::after_header(message.payload, NFGENMSG))
}

fn is_closed(entry: Attributes<'_>) -> bool {
    let state = entry.nested(CTA_PROTOINFO).nested(CTA_PROTOINFO_TCP).u8(CTA_PROTOINFO_TCP_STATE);
    state.is_some_and(|state| CLOSED.contains(&state))
}

fn read_flow(entry: Attributes<'_>) -> Option<Flow> {
    let (mut original, mut reply, mut status) = (None, None, 0);
    for attribute in entry {
        match attribute.kind {
            CTA_TUPLE_ORIG => original = Some(FlowTuple::read(attribute.value)?),
            CTA_TUPLE_REPLY => reply = Some(FlowTuple::read(attribute.value)?),
            CTA_STATUS => status = u32::from_be_bytes(attribute.value.try_into().ok()?),
            CTA_ZONE => return None,
            _ => {}
        }
    }
    let (original, reply) = (original?, reply?);
    // IPVS sets no status bit, but the reply has another address.
    let by_rule = status & IPS_DST_NAT != 0;
    let by_ipvs = reply.source != original.destination && !by_rule;
    Some(Flow {
        protocol: original.protocol,
        client: original.source.ip(),
        destination: original.destination,
        server: reply.source,
        translated: by_rule || by_ipvs,
        by_ipvs,
    })
}

pub(crate) fn fuzz(bytes: &[u8]) {
    for entry in Messages::new(bytes).filter_map(|message| entry_of(&message)) {
        let _ = (is_closed(entry), read_flow(entry));
    }
}

struct FlowTuple {
    protocol: Protocol,
    source: SocketAddr,
    destination: SocketAddr,
}

impl FlowTuple {
    fn read(tuple: &[u8]) -> Option<FlowTuple> {
        let tuple = Attributes::new(tuple);
        let (addresses, protocol) = (tuple.nested(CTA_TUPLE_IP), tuple.nested(CTA_TUPLE_PROTO));
        let number = protocol.u8(CTA_PROTO_NUM)?;
        let end = |v4, v6, port| {
            let address = addresses.get(v4).or_else(|| addresses.get(v6)).and_then(ip_address)?;
            Some(SocketAddr::new(address, protocol.be16(port)?))
        };
        Some(FlowTuple {
            protocol: Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)?,
            source: end(CTA_IP_V4_SRC, CTA_IP_V6_SRC, CTA_PROTO_SRC_PORT)?,
            destination: end(CTA_IP_V4_DST, CTA_IP_V6_DST, CTA_PROTO_DST_PORT)?,
        })
    }
}
