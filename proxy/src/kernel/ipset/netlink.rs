//! IP sets through netfilter's netlink (`include/uapi/linux/netfilter/ipset/ip_set.h`).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc;

use super::{DEFAULT_HASHSIZE, Kind, Member, Set, SetChange, SetHeader, Sets};
use crate::kernel::netlink::{Attributes, Netlink, NetlinkError, Parsed, Request};
use crate::model::{Family, Protocol};

/// `NFNL_SUBSYS_IPSET` (`include/uapi/linux/netfilter/nfnetlink.h`).
const SUBSYSTEM: u16 = 6;
/// The oldest protocol that all kernels since 2.6.39 speak (`IPSET_PROTOCOL_MIN`).
const PROTOCOL: u8 = 6;

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

/// `IPSET_ERR_EXIST`: the member is there already, or is not.
const ERR_EXIST: i32 = 4103;
/// `IPSET_ERR_BUSY`: a rule refers to the set, or did a moment ago: nf_tables lets go of what rules referred to in the background,
/// after their deletion was confirmed (`nf_tables_trans_destroy_work` in `net/netfilter/nf_tables_api.c`).
const ERR_BUSY: i32 = 4100;
/// How long a set that is to go is waited for, and how often it is tried.
const RELEASE: Duration = Duration::from_secs(2);
const RELEASE_LOOK: Duration = Duration::from_millis(5);
/// Members in one request: each takes up to 72 bytes, and an attribute has room for 65,535.
const MEMBERS: usize = 500;

/// The kernel's sets.
pub struct Nfnetlink {
    netlink: Netlink,
    revisions: HashMap<(Kind, Family), u8>,
}

impl Nfnetlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel has none for us.
    pub fn open() -> Result<Nfnetlink, NetlinkError> {
        let netlink = Netlink::open(NETLINK_NETFILTER)
            .map_err(|error| NetlinkError::new("reach ipset in this kernel (module ip_set)", error))?;
        Ok(Nfnetlink { netlink, revisions: HashMap::new() })
    }

    /// The newest revision of a type that the kernel knows.
    fn revision(&mut self, kind: Kind, family: Family) -> Result<u8, NetlinkError> {
        if let Some(known) = self.revisions.get(&(kind, family)) {
            return Ok(*known);
        }
        let attributes = begin().text(ATTR_TYPENAME, kind.as_str()).u8(ATTR_FAMILY, number_of(kind, family));
        let operation = format!("find the set type {} in this kernel", kind.as_str());
        let mut revision = None;
        self.netlink.ask(&request(CMD_TYPE, attributes, &operation, &[]), false, |payload| {
            revision = revision.or(Parsed::read(body(payload)).u8(ATTR_REVISION));
        })?;
        let revision =
            revision.ok_or_else(|| NetlinkError::new(&operation, io::Error::from(io::ErrorKind::InvalidData)))?;
        self.revisions.insert((kind, family), revision);
        Ok(revision)
    }
}

impl Sets for Nfnetlink {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        let list =
            request(CMD_LIST, begin().text(ATTR_SETNAME, name), &format!("list the set {name}"), &[libc::ENOENT]);
        let mut found: Option<Set> = None;
        self.netlink.ask(&list, true, |payload| {
            let part = Parsed::read(body(payload));
            let set = found.get_or_insert_with(|| Set {
                kind: String::new(),
                maxelem: 0,
                members: std::collections::BTreeSet::new(),
            });
            if let Some(kind) = part.text(ATTR_TYPENAME) {
                set.kind = kind;
            }
            if let Some(most) = part.nested(ATTR_DATA).and_then(|header| header.be32(ATTR_MAXELEM)) {
                set.maxelem = most;
            }
            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == set.kind);
            if let (Some(kind), Some(members)) = (kind, part.nested(ATTR_ADT)) {
                set.members.extend(members.iter().filter_map(|(_, member)| read_member(kind, &Parsed::read(member))));
            }
        })?;
        Ok(found)
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        let revision = self.revision(header.kind, header.family)?;
        let data = match header.kind {
            Kind::BitmapPort => {
                Attributes::new().network(ATTR_PORT, &0u16.to_be_bytes()).network(ATTR_PORT_TO, &u16::MAX.to_be_bytes())
            }
            _ => Attributes::new()
                .network(ATTR_HASHSIZE, &DEFAULT_HASHSIZE.to_be_bytes())
                .network(ATTR_MAXELEM, &header.maxelem.to_be_bytes()),
        };
        let attributes = begin()
            .text(ATTR_SETNAME, &header.name)
            .text(ATTR_TYPENAME, header.kind.as_str())
            .u8(ATTR_REVISION, revision)
            .u8(ATTR_FAMILY, number_of(header.kind, header.family))
            .nested(ATTR_DATA, &data);
        let mut request = request(CMD_CREATE, attributes, &format!("create the set {}", header.name), &[]);
        request.flags = netlink_packet_core::NLM_F_CREATE | netlink_packet_core::NLM_F_EXCL;
        self.netlink.send(&[request])
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        let mut requests = Vec::new();
        for change in changes {
            let (command, verb) = if change.add { (CMD_ADD, "add to") } else { (CMD_DEL, "delete from") };
            for part in change.members.chunks(MEMBERS) {
                let members = part.iter().fold(Attributes::new(), |all, one| all.nested(ATTR_DATA, &member(one)));
                let attributes = begin()
                    .text(ATTR_SETNAME, &change.set)
                    // Asked for with several members; the kernel counts for an error message.
                    .u32(ATTR_LINENO, 0)
                    .nested(ATTR_ADT, &members);
                let first = part.first().map(ToString::to_string).unwrap_or_default();
                let operation = format!("{verb} the set {} {} member(s) from {first} on", change.set, part.len());
                requests.push(request(command, attributes, &operation, &[ERR_EXIST]));
            }
        }
        self.netlink.send(&requests)
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        let attributes = begin().text(ATTR_SETNAME, one).text(ATTR_SETNAME2, other);
        self.netlink.send(&[request(CMD_SWAP, attributes, &format!("exchange the sets {one} and {other}"), &[])])
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        let request =
            request(CMD_DESTROY, begin().text(ATTR_SETNAME, name), &format!("destroy the set {name}"), &[libc::ENOENT]);
        let deadline = Instant::now() + RELEASE;
        loop {
            match self.netlink.send(std::slice::from_ref(&request)) {
                Err(error) if error.code() == Some(ERR_BUSY) && Instant::now() < deadline => {
                    std::thread::sleep(RELEASE_LOOK);
                }
                result => return result,
            }
        }
    }
}

fn begin() -> Attributes {
    Attributes::new().u8(ATTR_PROTOCOL, PROTOCOL)
}

fn request(command: u16, attributes: Attributes, operation: &str, harmless: &'static [i32]) -> Request {
    // `struct nfgenmsg`: family, version, resource.
    let header = vec![0, 0, 0, 0];
    Request { kind: SUBSYSTEM << 8 | command, flags: 0, header, attributes, operation: operation.to_owned(), harmless }
}

/// What follows `struct nfgenmsg`.
fn body(payload: &[u8]) -> &[u8] {
    payload.get(4..).unwrap_or_default()
}

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`, or none for a bitmap.
fn number_of(kind: Kind, family: Family) -> u8 {
    match family {
        _ if kind == Kind::BitmapPort => 0,
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn address(attributes: Attributes, kind: u16, address: IpAddr) -> Attributes {
    let inner = match address {
        IpAddr::V4(v4) => Attributes::new().network(ATTR_IPADDR_IPV4, &v4.octets()),
        IpAddr::V6(v6) => Attributes::new().network(ATTR_IPADDR_IPV6, &v6.octets()),
    };
    attributes.nested(kind, &inner)
}

fn number(protocol: Protocol) -> u8 {
    let number = match protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
        Protocol::Sctp => libc::IPPROTO_SCTP,
    };
    u8::try_from(number).unwrap_or_default()
}

fn member(member: &Member) -> Attributes {
    let at = |ip: &IpAddr, protocol: &Protocol, port: &u16| {
        address(Attributes::new(), ATTR_IP, *ip)
            .network(ATTR_PORT, &port.to_be_bytes())
            .u8(ATTR_PROTO, number(*protocol))
    };
    match member {
        Member::Port(port) => Attributes::new().network(ATTR_PORT, &port.to_be_bytes()),
        Member::Ip(ip) => address(Attributes::new(), ATTR_IP, *ip),
        Member::IpPort(ip, protocol, port) => at(ip, protocol, port),
        Member::IpPortIp(ip, protocol, port, second) => address(at(ip, protocol, port), ATTR_IP2, *second),
        Member::IpPortNet(ip, protocol, port, range) => {
            address(at(ip, protocol, port), ATTR_IP2, range.addr()).u8(ATTR_CIDR2, range.prefix_len())
        }
    }
}

fn read_address(parsed: &Parsed, kind: u16) -> Option<IpAddr> {
    let inner = parsed.nested(kind)?;
    if let Some(bytes) = inner.get(ATTR_IPADDR_IPV4) {
        return Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into());
    }
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(inner.get(ATTR_IPADDR_IPV6)?).ok()?).into())
}

fn read_member(kind: Kind, parsed: &Parsed) -> Option<Member> {
    let ip = || read_address(parsed, ATTR_IP);
    let port = || parsed.be16(ATTR_PORT);
    let protocol = || {
        let found = parsed.u8(ATTR_PROTO);
        [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|one| Some(number(*one)) == found)
    };
    Some(match kind {
        Kind::BitmapPort => Member::Port(port()?),
        Kind::HashIp => Member::Ip(ip()?),
        Kind::HashIpPort => Member::IpPort(ip()?, protocol()?, port()?),
        Kind::HashIpPortIp => Member::IpPortIp(ip()?, protocol()?, port()?, read_address(parsed, ATTR_IP2)?),
        Kind::HashIpPortNet => {
            let second = read_address(parsed, ATTR_IP2)?;
            let length = parsed.u8(ATTR_CIDR2).unwrap_or(if second.is_ipv4() { 32 } else { 128 });
            Member::IpPortNet(ip()?, protocol()?, port()?, IpNet::new(second, length).ok()?)
        }
    })
}
/// Reads these bytes as members of a set, for [`crate::fuzzing`].
pub(crate) fn fuzz(payload: &[u8]) {
    let parsed = Parsed::read(body(payload));
    for kind in Kind::ALL {
        let _ = read_member(kind, &parsed);
        for (_, member) in parsed.iter() {
            let _ = read_member(kind, &Parsed::read(member));
        }
    }
}
