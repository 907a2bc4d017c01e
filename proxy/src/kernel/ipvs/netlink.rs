//! IPVS through generic netlink (`include/uapi/linux/ip_vs.h`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_sys::protocols::NETLINK_GENERIC;
use nf_tables::netlink::{AttributeWriter, Attributes};
use nix::libc;

use super::{
    Destinations, IpvsDestination, SCHEDULER_FLAGS, ServerChange, ServerKey, ServerSpec, Timeouts, VirtualServers,
};
use crate::kernel::netlink::{NetlinkError, NetlinkSocket, Request, ip_address};
use crate::model::{Family, Protocol};

/// The generic netlink family that resolves families' names (`include/uapi/linux/genetlink.h`).
const GENL_ID_CTRL: u16 = 16;
const GENERIC_HEADER: usize = 4;
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
/// `IP_VS_CONN_F_MASQ`: destination NAT.
const MASQ: u32 = 0;
/// A trial server's mark: `SVPX`. No packet has it: proxies set single bits.
const TRIAL_MARK: u32 = 0x5356_5058;

const LISTS: usize = 10;

pub struct Genetlink {
    netlink: NetlinkSocket,
    family: u16,
}

impl Genetlink {
    pub fn open() -> Result<Genetlink, NetlinkError> {
        let operation = "reach IPVS in this kernel (module ip_vs)";
        let failed = |error| NetlinkError::new(operation, error);
        let mut netlink = NetlinkSocket::open(NETLINK_GENERIC).map_err(failed)?;
        let mut request = Request::new(GENL_ID_CTRL, &[CTRL_CMD_GETFAMILY, 2, 0, 0], operation);
        request.body.name(CTRL_ATTR_FAMILY_NAME, "family", "IPVS");
        let mut family = None;
        netlink.ask(&request, |payload| family = attributes(payload).u16(CTRL_ATTR_FAMILY_ID))?;
        let family = family.ok_or_else(|| failed(io::Error::from_raw_os_error(libc::ENOENT)))?;
        Ok(Genetlink { netlink, family })
    }

    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), NetlinkError> {
        let mut request = self.request(SET_CONFIG, "set the time-outs of IPVS connections");
        let empty = request.body.bytes().len();
        for (kind, time) in [
            (ATTR_TIMEOUT_TCP, timeouts.tcp),
            (ATTR_TIMEOUT_TCP_FIN, timeouts.tcp_fin),
            (ATTR_TIMEOUT_UDP, timeouts.udp),
        ] {
            if !time.is_zero() {
                // The kernel ignores 0, so less than a second becomes 1.
                let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1);
                request.body.put(kind, &seconds.to_ne_bytes());
            }
        }
        if request.body.bytes().len() == empty { Ok(()) } else { self.netlink.send(&[request]) }
    }

    /// Tries a scheduler with a virtual server that no packet reaches.
    pub fn try_scheduler(&mut self, name: &str) -> Result<(), NetlinkError> {
        let operation = format!("use the IPVS scheduler {name} (module ip_vs_{name})");
        let write_mark = |service: &mut AttributeWriter| {
            service.put(SVC_AF, &family_number(Family::V4).to_ne_bytes());
            service.put(SVC_FWMARK, &TRIAL_MARK.to_ne_bytes());
        };
        let mut add = self.request(NEW_SERVICE, &operation);
        add.harmless = &[libc::EEXIST];
        add.body.nest(ATTR_SERVICE, |service| {
            write_mark(service);
            service.name(SVC_SCHED_NAME, "scheduler", name);
            service.put(SVC_FLAGS, &flags(0));
            service.put(SVC_TIMEOUT, &0u32.to_ne_bytes());
            service.put(SVC_NETMASK, &u32::MAX.to_ne_bytes());
        });
        let mut delete = self.request(DEL_SERVICE, operation);
        delete.harmless = &[libc::ESRCH];
        delete.body.nest(ATTR_SERVICE, write_mark);
        self.netlink.send(&[add])?;
        self.netlink.send(&[delete])
    }

    fn request(&self, command: u8, operation: impl Into<String>) -> Request {
        Request::new(self.family, &[command, 1, 0, 0], operation)
    }

    fn change(&self, change: &ServerChange) -> Request {
        let of_server = |command, operation: String, key: &ServerKey, spec: Option<&ServerSpec>| {
            let mut request = self.request(command, operation);
            request.body.nest(ATTR_SERVICE, |service| {
                write_key(key, service);
                spec.iter().for_each(|spec| write_spec(spec, service));
            });
            request
        };
        let of_destination =
            |command, operation: String, key: &ServerKey, address: &SocketAddr, weight: Option<u32>| {
                let mut request = of_server(command, operation, key, None);
                request.body.nest(ATTR_DEST, |destination| write_destination(address, weight, destination));
                request
            };
        match change {
            ServerChange::Add(key, spec) => {
                of_server(NEW_SERVICE, format!("add the virtual server {key}"), key, Some(spec))
            }
            ServerChange::Set(key, spec) => {
                of_server(SET_SERVICE, format!("change the virtual server {key}"), key, Some(spec))
            }
            ServerChange::Delete(key) => {
                let request = of_server(DEL_SERVICE, format!("delete the virtual server {key}"), key, None);
                Request { harmless: &[libc::ESRCH], ..request }
            }
            ServerChange::AddDestination(key, address, weight) => {
                let operation = format!("add {address} to the virtual server {key}");
                of_destination(NEW_DEST, operation, key, address, Some(*weight))
            }
            ServerChange::SetWeight(key, address, weight) => {
                let operation = format!("weigh {address} in the virtual server {key}");
                of_destination(SET_DEST, operation, key, address, Some(*weight))
            }
            ServerChange::DeleteDestination(key, address) => {
                let operation = format!("delete {address} from the virtual server {key}");
                let request = of_destination(DEL_DEST, operation, key, address, None);
                Request { harmless: &[libc::ENOENT, libc::ESRCH], ..request }
            }
        }
    }

    fn list(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        let request = self.request(GET_SERVICE, "list the virtual servers");
        let mut found = BTreeMap::new();
        self.netlink.dump(&request, |payload| {
            let server = read_server(attributes(payload).nested(ATTR_SERVICE));
            found.extend(server.filter(|(key, _)| key.family() == family));
        })?;
        Ok(found)
    }
}

impl VirtualServers for Genetlink {
    /// Lists until two lists are equal: a dump counts the servers of all network namespaces
    /// (`ip_vs_genl_dump_services`, net/netfilter/ipvs/ip_vs_ctl.c), so their changes make it skip servers.
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        let mut found = self.list(family)?;
        for _ in 1..LISTS {
            let before = std::mem::replace(&mut found, self.list(family)?);
            if before == found {
                break;
            }
        }
        Ok(found)
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let mut request = self.request(GET_DEST, format!("list the destinations of {key}"));
            request.body.nest(ATTR_SERVICE, |service| write_key(key, service));
            let mut found = Destinations::new();
            self.netlink.dump(&request, |payload| {
                found.extend(read_destination(attributes(payload).nested(ATTR_DEST), key.family()));
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

fn attributes(payload: &[u8]) -> Attributes<'_> {
    Attributes::after_header(payload, GENERIC_HEADER)
}

fn family_number(family: Family) -> u16 {
    let number = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
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
    ip_address(bytes.get(..usize::from(family.address_bits()) / 8)?)
}

/// `struct ip_vs_flags`, whose mask covers every flag.
fn flags(flags: u32) -> [u8; 8] {
    let mut bytes = [0xff; 8];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

fn write_key(key: &ServerKey, service: &mut AttributeWriter) {
    service.put(SVC_AF, &family_number(key.family()).to_ne_bytes());
    service.put(SVC_PROTOCOL, &u16::from(key.protocol.number()).to_ne_bytes());
    service.put(SVC_ADDR, &address_bytes(key.address.ip()));
    service.put(SVC_PORT, &key.address.port().to_be_bytes());
}

fn write_spec(spec: &ServerSpec, service: &mut AttributeWriter) {
    let persistent = if spec.persistence.is_some() { PERSISTENT } else { 0 };
    service.name(SVC_SCHED_NAME, "scheduler", &spec.scheduler);
    service.put(SVC_FLAGS, &flags(spec.flags | persistent));
    service.put(SVC_TIMEOUT, &spec.persistence.unwrap_or_default().to_ne_bytes());
    service.put(SVC_NETMASK, &spec.netmask.to_ne_bytes());
}

fn write_destination(address: &SocketAddr, weight: Option<u32>, destination: &mut AttributeWriter) {
    destination.put(DEST_ADDR, &address_bytes(address.ip()));
    destination.put(DEST_PORT, &address.port().to_be_bytes());
    if let Some(weight) = weight {
        let numbers = [(DEST_FWD_METHOD, MASQ), (DEST_WEIGHT, weight), (DEST_U_THRESH, 0), (DEST_L_THRESH, 0)];
        numbers.into_iter().for_each(|(kind, number)| destination.put(kind, &number.to_ne_bytes()));
    }
}

fn read_server(service: Attributes<'_>) -> Option<(ServerKey, ServerSpec)> {
    if service.u32(SVC_FWMARK).is_some_and(|mark| mark != 0) {
        return None;
    }
    let (family, protocol) = (service.u16(SVC_AF)?, service.u16(SVC_PROTOCOL)?);
    let family = Family::ALL.into_iter().find(|one| family_number(*one) == family)?;
    let protocol = Protocol::ALL.into_iter().find(|one| u16::from(one.number()) == protocol)?;
    let address = read_address(service.get(SVC_ADDR)?, family)?;
    // `struct ip_vs_flags`.
    let flags = u32::from_ne_bytes(*service.get(SVC_FLAGS)?.first_chunk()?);
    let spec = ServerSpec {
        scheduler: service.text(SVC_SCHED_NAME)?.to_owned(),
        flags: flags & SCHEDULER_FLAGS,
        persistence: if flags & PERSISTENT == 0 { None } else { service.u32(SVC_TIMEOUT) },
        netmask: service.u32(SVC_NETMASK)?,
    };
    Some((ServerKey { protocol, address: SocketAddr::new(address, service.be16(SVC_PORT)?) }, spec))
}

fn read_destination(destination: Attributes<'_>, family: Family) -> Option<(SocketAddr, IpvsDestination)> {
    let address = read_address(destination.get(DEST_ADDR)?, family)?;
    let count = |kind| u64::from(destination.u32(kind).unwrap_or_default());
    let state = IpvsDestination {
        weight: destination.u32(DEST_WEIGHT)?,
        connections: count(DEST_ACTIVE_CONNS) + count(DEST_INACT_CONNS),
    };
    Some((SocketAddr::new(address, destination.be16(DEST_PORT)?), state))
}

pub(crate) fn fuzz(payload: &[u8]) {
    let outer = attributes(payload);
    for part in [outer.nested(ATTR_SERVICE), outer.nested(ATTR_DEST), outer] {
        let _ = read_server(part);
        for family in Family::ALL {
            let _ = read_destination(part, family);
        }
    }
}
