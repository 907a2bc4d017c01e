use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nf_tables::netlink::{AttributeWriter, Attributes, NET_BYTE_ORDER};
use nix::libc;

use super::{DEFAULT_HASHSIZE, IpSets, Set, SetChange, SetHeader, SetMember, SetType};
use crate::kernel::netlink::{NLM_F_CREATE, NLM_F_EXCL, NetlinkError, NetlinkSocket, Request, ip_address};
use crate::model::{Family, Protocol};

/// `include/uapi/linux/netfilter/nfnetlink.h`.
const SUBSYSTEM: u16 = 6;
/// `IPSET_PROTOCOL_MIN`: all kernels since 2.6.39.
const PROTOCOL: u8 = 6;
const NFGENMSG: usize = 4;

const CMD_CREATE: u16 = 2;
const CMD_DESTROY: u16 = 3;
const CMD_SWAP: u16 = 6;
const CMD_LIST: u16 = 7;
const CMD_ADD: u16 = 9;
const CMD_DEL: u16 = 10;
const CMD_TYPE: u16 = 13;

const ATTR_PROTOCOL: u16 = 1;
const ATTR_SETNAME: u16 = 2;
const ATTR_TYPENAME: u16 = 3;
const ATTR_SETNAME2: u16 = 3;
const ATTR_REVISION: u16 = 4;
const ATTR_FAMILY: u16 = 5;
const ATTR_DATA: u16 = 7;
const ATTR_ADT: u16 = 8;
const ATTR_LINENO: u16 = 9;

const ATTR_IP: u16 = 1;
const ATTR_PORT: u16 = 4;
const ATTR_PORT_TO: u16 = 5;
const ATTR_PROTO: u16 = 7;
const ATTR_HASHSIZE: u16 = 18;
const ATTR_MAXELEM: u16 = 19;
const ATTR_IP2: u16 = 20;
const ATTR_CIDR2: u16 = 21;
const ATTR_IPADDR_IPV4: u16 = 1;
const ATTR_IPADDR_IPV6: u16 = 2;

/// `IPSET_ERR_EXIST`: nothing to add or delete.
const ERR_EXIST: i32 = 4103;
/// `IPSET_ERR_BUSY`: a rule refers to the set. nf_tables releases sets after it acknowledges the rule's deletion
/// (`nf_tables_trans_destroy_work`).
const ERR_BUSY: i32 = 4100;
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const RELEASE_PAUSE: Duration = Duration::from_millis(5);
/// A member takes up to 72 bytes; 65,535 bytes fit into the attribute.
const MEMBERS_PER_REQUEST: usize = 500;

pub struct Nfnetlink {
    netlink: NetlinkSocket,
    revisions: HashMap<(SetType, Family), u8>,
}

impl Nfnetlink {
    pub fn open() -> Result<Nfnetlink, NetlinkError> {
        let netlink = NetlinkSocket::open(NETLINK_NETFILTER)
            .map_err(|error| NetlinkError::new("reach ipset in this kernel (module ip_set)", error))?;
        Ok(Nfnetlink { netlink, revisions: HashMap::new() })
    }

    fn revision(&mut self, kind: SetType, family: Family) -> Result<u8, NetlinkError> {
        if let Some(known) = self.revisions.get(&(kind, family)) {
            return Ok(*known);
        }
        let mut request = request(CMD_TYPE, format!("find the set type {} in this kernel", kind.as_str()));
        request.body.name(ATTR_TYPENAME, "set type", kind.as_str());
        request.body.put(ATTR_FAMILY, &[family_number(kind, family)]);
        let mut revision = None;
        self.netlink.ask(&request, |payload| revision = revision.or(body(payload).u8(ATTR_REVISION)))?;
        let invalid = || NetlinkError::new(&request.operation, io::ErrorKind::InvalidData.into());
        let revision = revision.ok_or_else(invalid)?;
        self.revisions.insert((kind, family), revision);
        Ok(revision)
    }
}

impl IpSets for Nfnetlink {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        let mut list = request_for(CMD_LIST, name, format!("list the set {name}"));
        list.harmless = &[libc::ENOENT];
        let mut found: Option<Set> = None;
        self.netlink.dump(&list, |payload| {
            let part = body(payload);
            let set = found.get_or_insert_default();
            if let Some(kind) = part.text(ATTR_TYPENAME) {
                kind.clone_into(&mut set.kind);
            }
            if let Some(most) = part.nested(ATTR_DATA).be32(ATTR_MAXELEM) {
                set.maxelem = most;
            }
            if let Some(kind) = SetType::ALL.into_iter().find(|kind| kind.as_str() == set.kind) {
                let members = part.nested(ATTR_ADT).map(|member| Attributes::new(member.value));
                set.members.extend(members.filter_map(|member| read_member(kind, member)));
            }
        })?;
        Ok(found)
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        let revision = self.revision(header.kind, header.family)?;
        let mut request = request_for(CMD_CREATE, &header.name, format!("create the set {}", header.name));
        request.flags = NLM_F_CREATE | NLM_F_EXCL;
        request.body.name(ATTR_TYPENAME, "set type", header.kind.as_str());
        request.body.put(ATTR_REVISION, &[revision]);
        request.body.put(ATTR_FAMILY, &[family_number(header.kind, header.family)]);
        request.body.nest(ATTR_DATA, |data| match header.kind {
            SetType::BitmapPort => {
                data.put(NET_BYTE_ORDER | ATTR_PORT, &0u16.to_be_bytes());
                data.put(NET_BYTE_ORDER | ATTR_PORT_TO, &u16::MAX.to_be_bytes());
            }
            _ => {
                data.be32(NET_BYTE_ORDER | ATTR_HASHSIZE, DEFAULT_HASHSIZE);
                data.be32(NET_BYTE_ORDER | ATTR_MAXELEM, header.maxelem);
            }
        });
        self.netlink.send(&[request])
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        let mut requests = Vec::new();
        for change in changes {
            let (command, verb) = if change.add { (CMD_ADD, "add to") } else { (CMD_DEL, "delete from") };
            for part in change.members.chunks(MEMBERS_PER_REQUEST) {
                let first = part.first().map(ToString::to_string).unwrap_or_default();
                let operation = format!("{verb} the set {} {} member(s) from {first} on", change.set, part.len());
                let mut request = request_for(command, &change.set, operation);
                request.harmless = &[ERR_EXIST];
                // ipset demands this attribute with several members.
                request.body.put(ATTR_LINENO, &0u32.to_ne_bytes());
                request.body.nest(ATTR_ADT, |members| {
                    part.iter().for_each(|member| members.nest(ATTR_DATA, |data| write_member(member, data)));
                });
                requests.push(request);
            }
        }
        self.netlink.send(&requests)
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        let mut request = request_for(CMD_SWAP, one, format!("exchange the sets {one} and {other}"));
        request.body.name(ATTR_SETNAME2, "set", other);
        self.netlink.send(&[request])
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut request = request_for(CMD_DESTROY, name, format!("destroy the set {name}"));
        request.harmless = &[libc::ENOENT];
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            match self.netlink.send(std::slice::from_ref(&request)) {
                Err(error) if error.code() == Some(ERR_BUSY) && Instant::now() < deadline => {
                    std::thread::sleep(RELEASE_PAUSE);
                }
                result => return result,
            }
        }
    }
}

fn request(command: u16, operation: String) -> Request {
    let mut request = Request::new(SUBSYSTEM << 8 | command, &[0; NFGENMSG], operation);
    request.body.put(ATTR_PROTOCOL, &[PROTOCOL]);
    request
}

fn request_for(command: u16, set: &str, operation: String) -> Request {
    let mut request = request(command, operation);
    request.body.name(ATTR_SETNAME, "set", set);
    request
}

fn body(payload: &[u8]) -> Attributes<'_> {
    Attributes::after_header(payload, NFGENMSG)
}

/// Returns `NFPROTO_IPV4`, `NFPROTO_IPV6`, or `NFPROTO_UNSPEC` for a bitmap.
fn family_number(kind: SetType, family: Family) -> u8 {
    match family {
        _ if kind == SetType::BitmapPort => 0,
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn write_address(kind: u16, address: IpAddr, data: &mut AttributeWriter) {
    data.nest(kind, |data| match address {
        IpAddr::V4(v4) => data.put(NET_BYTE_ORDER | ATTR_IPADDR_IPV4, &v4.octets()),
        IpAddr::V6(v6) => data.put(NET_BYTE_ORDER | ATTR_IPADDR_IPV6, &v6.octets()),
    });
}

fn write_member(member: &SetMember, data: &mut AttributeWriter) {
    if let Some(address) = member.address() {
        write_address(ATTR_IP, address, data);
    }
    match member {
        SetMember::Ip(_) => return,
        SetMember::Port(port) => data.put(NET_BYTE_ORDER | ATTR_PORT, &port.to_be_bytes()),
        SetMember::IpPort(_, protocol, port)
        | SetMember::IpPortIp(_, protocol, port, _)
        | SetMember::IpPortNet(_, protocol, port, _) => {
            data.put(NET_BYTE_ORDER | ATTR_PORT, &port.to_be_bytes());
            data.put(ATTR_PROTO, &[protocol.number()]);
        }
    }
    match member {
        SetMember::IpPortIp(.., second) => write_address(ATTR_IP2, *second, data),
        SetMember::IpPortNet(.., range) => {
            write_address(ATTR_IP2, range.addr(), data);
            data.put(ATTR_CIDR2, &[range.prefix_len()]);
        }
        _ => {}
    }
}

fn read_address(member: Attributes<'_>, kind: u16) -> Option<IpAddr> {
    let address = member.nested(kind);
    address.get(ATTR_IPADDR_IPV4).or_else(|| address.get(ATTR_IPADDR_IPV6)).and_then(ip_address)
}

fn read_member(kind: SetType, member: Attributes<'_>) -> Option<SetMember> {
    let ip = || read_address(member, ATTR_IP);
    let port = || member.be16(ATTR_PORT);
    let protocol = || {
        let number = member.u8(ATTR_PROTO)?;
        Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
    };
    Some(match kind {
        SetType::BitmapPort => SetMember::Port(port()?),
        SetType::HashIp => SetMember::Ip(ip()?),
        SetType::HashIpPort => SetMember::IpPort(ip()?, protocol()?, port()?),
        SetType::HashIpPortIp => SetMember::IpPortIp(ip()?, protocol()?, port()?, read_address(member, ATTR_IP2)?),
        SetType::HashIpPortNet => {
            let second = read_address(member, ATTR_IP2)?;
            let length = member.u8(ATTR_CIDR2).unwrap_or(if second.is_ipv4() { 32 } else { 128 });
            SetMember::IpPortNet(ip()?, protocol()?, port()?, IpNet::new(second, length).ok()?)
        }
    })
}

pub(crate) fn fuzz(payload: &[u8]) {
    let attributes = body(payload);
    for kind in SetType::ALL {
        let _ = read_member(kind, attributes);
        for member in attributes {
            let _ = read_member(kind, Attributes::new(member.value));
        }
    }
}
