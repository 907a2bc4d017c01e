//! IPVS through generic netlink (`include/uapi/linux/ip_vs.h`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_GENERIC;
use nix::libc;

use super::{Destination, Destinations, SCHEDULER_FLAGS, ServerChange, ServerKey, ServerSpec, Servers, Timeouts};
use crate::kernel::netlink::{Attributes, Netlink, NetlinkError, Parsed, Request};
use crate::model::{Family, Protocol};

/// `GENL_ID_CTRL`, the family that knows the families (`include/uapi/linux/genetlink.h`).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const DEL_DEST: u8 = 7;
const GET_DEST: u8 = 8;
const SET_CONFIG: u8 = 12;

const ATTR_SERVICE: u16 = 1;
const ATTR_DEST: u16 = 2;
const ATTR_TIMEOUT_TCP: u16 = 4;
const ATTR_TIMEOUT_TCP_FIN: u16 = 5;
const ATTR_TIMEOUT_UDP: u16 = 6;

const SVC_AF: u16 = 1;
const SVC_PROTOCOL: u16 = 2;
const SVC_ADDR: u16 = 3;
const SVC_PORT: u16 = 4;
const SVC_FWMARK: u16 = 5;
const SVC_SCHED_NAME: u16 = 6;
const SVC_FLAGS: u16 = 7;
const SVC_TIMEOUT: u16 = 8;
const SVC_NETMASK: u16 = 9;

const DEST_ADDR: u16 = 1;
const DEST_PORT: u16 = 2;
const DEST_FWD_METHOD: u16 = 3;
const DEST_WEIGHT: u16 = 4;
const DEST_U_THRESH: u16 = 5;
const DEST_L_THRESH: u16 = 6;
const DEST_ACTIVE_CONNS: u16 = 7;
const DEST_INACT_CONNS: u16 = 8;

/// `IP_VS_SVC_F_PERSISTENT`.
const PERSISTENT: u32 = 1;
/// `IP_VS_CONN_F_MASQ`: the destination's address is translated.
const MASQ: u32 = 0;
/// The mark of the virtual server by which a scheduler is tried out. No packet is given such a mark: it has more bits than
/// one (and `SVPX`'s letters).
const TRIAL_MARK: u32 = 0x5356_5058;

/// The kernel's IPVS.
pub struct Genetlink {
    netlink: Netlink,
    family: u16,
}

impl Genetlink {
    /// Finds IPVS in this kernel; its module is loaded if need be.
    ///
    /// # Errors
    /// When there is none.
    pub fn open() -> Result<Genetlink, NetlinkError> {
        let operation = "reach IPVS in this kernel (module ip_vs)";
        let mut netlink = Netlink::open(NETLINK_GENERIC).map_err(|error| NetlinkError::new(operation, error))?;
        let request = Request {
            kind: GENL_ID_CTRL,
            flags: 0,
            header: vec![CTRL_CMD_GETFAMILY, 2, 0, 0],
            attributes: Attributes::new().text(CTRL_ATTR_FAMILY_NAME, "IPVS"),
            operation: operation.to_owned(),
            harmless: &[],
        };
        let mut family = None;
        netlink.ask(&request, false, |payload| family = Parsed::read(body(payload)).u16(CTRL_ATTR_FAMILY_ID))?;
        let nothing = || NetlinkError::new(operation, io::Error::from_raw_os_error(libc::ENOENT));
        Ok(Genetlink { netlink, family: family.ok_or_else(nothing)? })
    }

    /// Sets the time-outs that are not zero.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), NetlinkError> {
        let seconds = |time: std::time::Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let mut attributes = Attributes::new();
        for (kind, time) in [
            (ATTR_TIMEOUT_TCP, timeouts.tcp),
            (ATTR_TIMEOUT_TCP_FIN, timeouts.tcp_fin),
            (ATTR_TIMEOUT_UDP, timeouts.udp),
        ] {
            if !time.is_zero() {
                // Less than a second is a second: 0 would leave it.
                attributes = attributes.u32(kind, seconds(time).max(1));
            }
        }
        if attributes.is_empty() {
            return Ok(());
        }
        let request = self.request(SET_CONFIG, attributes, "set the time-outs of IPVS connections", &[]);
        self.netlink.send(&[request])
    }

    /// Whether the kernel has a scheduler, found out by a virtual server that no packet can reach.
    ///
    /// # Errors
    /// When it has not, or refuses the trial.
    pub fn try_scheduler(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mark = Attributes::new().u16(SVC_AF, af(Family::V4)).u32(SVC_FWMARK, TRIAL_MARK);
        let service = mark
            .clone()
            .text(SVC_SCHED_NAME, name)
            .bytes(SVC_FLAGS, &flags(0))
            .u32(SVC_TIMEOUT, 0)
            .u32(SVC_NETMASK, u32::MAX);
        let operation = format!("use the IPVS scheduler {name} (module ip_vs_{name})");
        let service = Attributes::new().nested(ATTR_SERVICE, &service);
        let add = self.request(NEW_SERVICE, service, &operation, &[libc::EEXIST]);
        let mark = Attributes::new().nested(ATTR_SERVICE, &mark);
        let delete = self.request(DEL_SERVICE, mark, &operation, &[libc::ESRCH]);
        self.netlink.send(&[add])?;
        self.netlink.send(&[delete])
    }

    fn request(&self, command: u8, attributes: Attributes, operation: &str, harmless: &'static [i32]) -> Request {
        let header = vec![command, 1, 0, 0];
        Request { kind: self.family, flags: 0, header, attributes, operation: operation.to_owned(), harmless }
    }

    fn change(&self, change: &ServerChange) -> Request {
        let of_server = |command, service: Attributes, operation: String, harmless| {
            self.request(command, Attributes::new().nested(ATTR_SERVICE, &service), &operation, harmless)
        };
        let of_destination = |command, key: &ServerKey, destination: Attributes, operation: String, harmless| {
            let both = Attributes::new().nested(ATTR_SERVICE, &name(key)).nested(ATTR_DEST, &destination);
            self.request(command, both, &operation, harmless)
        };
        match change {
            ServerChange::Add(key, spec) => {
                of_server(NEW_SERVICE, described(key, spec), format!("add the virtual server {key}"), &[])
            }
            ServerChange::Set(key, spec) => {
                of_server(SET_SERVICE, described(key, spec), format!("change the virtual server {key}"), &[])
            }
            ServerChange::Delete(key) => {
                of_server(DEL_SERVICE, name(key), format!("delete the virtual server {key}"), &[libc::ESRCH])
            }
            ServerChange::AddDestination(key, address, weight) => {
                let operation = format!("add {address} to the virtual server {key}");
                of_destination(NEW_DEST, key, destination(address, Some(*weight)), operation, &[])
            }
            ServerChange::SetWeight(key, address, weight) => {
                let operation = format!("weigh {address} in the virtual server {key}");
                of_destination(SET_DEST, key, destination(address, Some(*weight)), operation, &[])
            }
            ServerChange::DeleteDestination(key, address) => {
                let operation = format!("delete {address} from the virtual server {key}");
                of_destination(DEL_DEST, key, destination(address, None), operation, &[libc::ENOENT, libc::ESRCH])
            }
        }
    }
}

impl Genetlink {
    fn servers_once(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        let request = self.request(GET_SERVICE, Attributes::new(), "list the virtual servers", &[]);
        let mut found = BTreeMap::new();
        self.netlink.ask(&request, true, |payload| {
            let service = Parsed::read(body(payload)).nested(ATTR_SERVICE);
            found.extend(service.as_ref().and_then(read_server).filter(|(key, _)| key.family() == family));
        })?;
        Ok(found)
    }
}

/// How often virtual servers are listed at most until two lists in a row are alike.
const LOOKS: usize = 10;

impl Servers for Genetlink {
    /// A dump counts on by the servers of all network namespaces (`ip_vs_genl_dump_services`, net/netfilter/ipvs/ip_vs_ctl.c): one
    /// that comes or goes in another namespace meanwhile – the nodes of a cluster in containers share a kernel – makes it pass
    /// over some of ours, and the kernel does not say so. Two lists that are alike were not disturbed.
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        let mut found = self.servers_once(family)?;
        for _ in 1..LOOKS {
            let before = std::mem::replace(&mut found, self.servers_once(family)?);
            if before == found {
                break;
            }
        }
        Ok(found)
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let service = Attributes::new().nested(ATTR_SERVICE, &name(key));
            let request = self.request(GET_DEST, service, &format!("list the destinations of {key}"), &[]);
            let mut found = Destinations::new();
            self.netlink.ask(&request, true, |payload| {
                let destination = Parsed::read(body(payload)).nested(ATTR_DEST);
                found.extend(destination.as_ref().and_then(|one| read_destination(one, key.family())));
            })?;
            all.push(found);
        }
        Ok(all)
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        let requests: Vec<Request> = changes.iter().map(|change| self.change(change)).collect();
        self.netlink.send(&requests)
    }
}

/// What follows the generic header.
fn body(payload: &[u8]) -> &[u8] {
    payload.get(4..).unwrap_or_default()
}

fn af(family: Family) -> u16 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    u16::try_from(number).unwrap_or_default()
}

fn number(protocol: Protocol) -> u16 {
    let number = match protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
        Protocol::Sctp => libc::IPPROTO_SCTP,
    };
    u16::try_from(number).unwrap_or_default()
}

/// `union nf_inet_addr`.
fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn read_address(bytes: &[u8], family: Family) -> Option<IpAddr> {
    Some(match family {
        Family::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into(),
        Family::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(..16)?).ok()?).into(),
    })
}

/// `struct ip_vs_flags`, every bit of it meant.
fn flags(flags: u32) -> [u8; 8] {
    let mut bytes = [0xff; 8];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

fn name(key: &ServerKey) -> Attributes {
    Attributes::new()
        .u16(SVC_AF, af(key.family()))
        .u16(SVC_PROTOCOL, number(key.protocol))
        .bytes(SVC_ADDR, &address_bytes(key.address.ip()))
        .bytes(SVC_PORT, &key.address.port().to_be_bytes())
}

fn described(key: &ServerKey, spec: &ServerSpec) -> Attributes {
    let persistent = if spec.persistence.is_some() { PERSISTENT } else { 0 };
    name(key)
        .text(SVC_SCHED_NAME, &spec.scheduler)
        .bytes(SVC_FLAGS, &flags(spec.flags | persistent))
        .u32(SVC_TIMEOUT, spec.persistence.unwrap_or_default())
        .u32(SVC_NETMASK, spec.netmask)
}

fn destination(address: &SocketAddr, weight: Option<u32>) -> Attributes {
    let name = Attributes::new()
        .bytes(DEST_ADDR, &address_bytes(address.ip()))
        .bytes(DEST_PORT, &address.port().to_be_bytes());
    match weight {
        None => name,
        Some(weight) => {
            name.u32(DEST_FWD_METHOD, MASQ).u32(DEST_WEIGHT, weight).u32(DEST_U_THRESH, 0).u32(DEST_L_THRESH, 0)
        }
    }
}

fn read_server(service: &Parsed) -> Option<(ServerKey, ServerSpec)> {
    if service.u32(SVC_FWMARK).is_some_and(|mark| mark != 0) {
        return None;
    }
    let family = Family::ALL.into_iter().find(|family| Some(af(*family)) == service.u16(SVC_AF))?;
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let protocol = protocol.into_iter().find(|one| Some(number(*one)) == service.u16(SVC_PROTOCOL))?;
    let address = read_address(service.get(SVC_ADDR)?, family)?;
    let flags = service.u32(SVC_FLAGS)?;
    let spec = ServerSpec {
        scheduler: service.text(SVC_SCHED_NAME)?,
        flags: flags & SCHEDULER_FLAGS,
        persistence: if flags & PERSISTENT == 0 { None } else { service.u32(SVC_TIMEOUT) },
        netmask: service.u32(SVC_NETMASK)?,
    };
    Some((ServerKey { protocol, address: SocketAddr::new(address, service.be16(SVC_PORT)?) }, spec))
}

fn read_destination(destination: &Parsed, family: Family) -> Option<(SocketAddr, Destination)> {
    let address = read_address(destination.get(DEST_ADDR)?, family)?;
    let count = |kind| u64::from(destination.u32(kind).unwrap_or_default());
    let state = Destination {
        weight: destination.u32(DEST_WEIGHT)?,
        connections: count(DEST_ACTIVE_CONNS) + count(DEST_INACT_CONNS),
    };
    Some((SocketAddr::new(address, destination.be16(DEST_PORT)?), state))
}
/// Reads these bytes as a virtual server and as its destinations, for [`crate::fuzzing`].
pub(crate) fn fuzz(payload: &[u8]) {
    let parsed = Parsed::read(body(payload));
    for part in [parsed.nested(ATTR_SERVICE), parsed.nested(ATTR_DEST), Some(parsed)].iter().flatten() {
        let _ = read_server(part);
        for family in Family::ALL {
            let _ = read_destination(part, family);
        }
    }
}
