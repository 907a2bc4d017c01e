//! Connections and persistence templates (net/netfilter/ipvs/ip_vs_conn.c).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::schedule::{OpeningPacket, Rotation, ScheduledServer, ServerLoad, choose};
use super::{CalledService, Forwarding, RealServer, Unmodelled, VirtualService, VirtualServices};
use crate::chance::Chance;
use crate::masked::{Masked, bits};
use crate::packet::{Packet, PacketBody, TcpFlags};
use crate::protocol::Protocol;
use crate::sysctl::Sysctls;

/// Seconds (`ipvsadm --set`; `tcp_timeouts` in ip_vs_proto_tcp.c).
const TCP_ESTABLISHED: u64 = 900;
const TCP_OPENING: u64 = 60;
const TCP_ENDING: u64 = 120;
const TCP_RESET: u64 = 10;
const UDP: u64 = 300;
const SCTP: u64 = 900;

/// Identifies a service by address, because indexes change.
type ServiceKey = (Protocol, SocketAddr);
type TemplateKey = (ServiceKey, u128);

#[derive(Debug, Clone, Copy)]
pub(crate) struct IpvsConnection {
    pub(crate) protocol: Protocol,
    pub(crate) client: SocketAddr,
    pub(crate) virtual_address: SocketAddr,
    pub(crate) server: SocketAddr,
    service: ServiceKey,
    template: Option<TemplateKey>,
    /// Counted in `ActiveConn`.
    active: bool,
    /// FIN bits: 0 client, 1 server.
    finished: u8,
    /// Milliseconds.
    expires: u64,
}

const BOTH: u8 = 3;

#[derive(Debug, Clone, Default)]
pub(crate) struct IpvsState {
    all: BTreeMap<u64, IpvsConnection>,
    next: u64,
    by_client: BTreeMap<(Protocol, SocketAddr, SocketAddr), u64>,
    by_server: BTreeMap<(Protocol, SocketAddr, SocketAddr), u64>,
    templates: BTreeMap<TemplateKey, (SocketAddr, u64)>,
    rotations: BTreeMap<ServiceKey, Rotation>,
    /// When expired connections were last removed.
    looked: Option<u64>,
}

/// A packet as IPVS receives it.
pub(crate) struct SeenPacket<'a> {
    pub(crate) packet: &'a Packet,
    pub(crate) mark: u32,
    /// Whether conntrack has confirmed the connection.
    pub(crate) known: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// The virtual service or the chosen server is not modelled.
    NotModelled(Unmodelled),
    /// The packet opens no connection.
    Passes,
    /// No server is available: rejected.
    NoServer,
    /// The server was removed: the packet is dropped.
    Gone,
    /// The packet reuses the port of a connection in conntrack: dropped; its retry is scheduled.
    Reused,
}

impl IpvsConnection {
    pub(crate) fn is_persistent(&self) -> bool {
        self.template.is_some()
    }

    /// Updates state and expiry (ip_vs_proto_tcp.c, ip_vs_proto_udp.c, ip_vs_proto_sctp.c).
    fn see(&mut self, packet: &Packet, reply: bool, now: u64) {
        let seconds = match packet.body {
            PacketBody::Tcp { flags, .. } => {
                if flags.has(TcpFlags::RST) {
                    self.finished = BOTH;
                } else if flags.has(TcpFlags::FIN) {
                    self.finished |= 1 << u8::from(reply);
                }
                self.active = self.finished == 0 && !flags.has(TcpFlags::SYN);
                match (self.active, self.finished) {
                    _ if flags.has(TcpFlags::RST) => TCP_RESET,
                    (true, _) => TCP_ESTABLISHED,
                    (false, 0) => TCP_OPENING,
                    (false, _) => TCP_ENDING,
                }
            }
            PacketBody::Udp { .. } => UDP,
            _ => SCTP,
        };
        self.expires = now + seconds * 1000;
    }
}

fn sockets(packet: &Packet) -> Option<(SocketAddr, SocketAddr)> {
    let (from, to) = packet.ports()?;
    Some((SocketAddr::new(packet.source, from), SocketAddr::new(packet.destination, to)))
}

impl IpvsState {
    fn expire(&mut self, now: u64) {
        if self.looked.replace(now) == Some(now) {
            return;
        }
        let ended: Vec<u64> = self.all.iter().filter(|(_, one)| one.expires <= now).map(|(id, _)| *id).collect();
        for id in ended {
            self.remove(id);
        }
        // Templates last as long as their connections.
        let held: Vec<TemplateKey> = self.all.values().filter_map(|one| one.template).collect();
        self.templates.retain(|key, (_, expires)| *expires > now || held.contains(key));
    }

    pub(crate) fn count(&self, service: ServiceKey, server: SocketAddr, now: u64) -> usize {
        let of = |one: &&IpvsConnection| one.service == service && one.server == server && one.expires > now;
        self.all.values().filter(of).count()
    }

    fn remove(&mut self, id: u64) {
        if let Some(one) = self.all.remove(&id) {
            self.by_client.remove(&(one.protocol, one.client, one.virtual_address));
            self.by_server.remove(&(one.protocol, one.server, one.client));
        }
    }

    /// Models `ip_vs_conn_out_get`.
    pub(crate) fn answered(&mut self, packet: &Packet, now: u64) -> Option<IpvsConnection> {
        self.expire(now);
        let (from, to) = sockets(packet)?;
        let id = *self.by_server.get(&(packet.protocol(), from, to))?;
        let one = self.all.get_mut(&id)?;
        one.see(packet, true, now);
        Some(*one)
    }

    /// Models `ip_vs_conn_out_get` for a request on its way to the server.
    pub(crate) fn forwarded(&self, packet: &Packet, now: u64) -> Option<IpvsConnection> {
        let (client, server) = sockets(packet)?;
        let id = self.by_server.get(&(packet.protocol(), server, client))?;
        self.all.get(id).filter(|one| one.expires > now).copied()
    }

    /// Models `ip_vs_in_hook`.
    pub(crate) fn called(
        &mut self,
        seen: &SeenPacket<'_>,
        services: &VirtualServices,
        sysctls: &Sysctls,
        now: u64,
        chance: &mut Chance,
    ) -> Result<(IpvsConnection, Option<ScheduledServer>), NoConnection> {
        self.expire(now);
        let SeenPacket { packet, mark, known } = *seen;
        let (client, to) = sockets(packet).ok_or(NoConnection::Passes)?;
        let protocol = packet.protocol();
        if let Some(id) = self.by_client.get(&(protocol, client, to)).copied()
            && let Some(one) = self.all.get(&id).copied()
        {
            if !opens_anew(&one, packet, services, sysctls) {
                return self.follow(id, packet, services, sysctls, now);
            }
            self.remove(id);
            if known && sysctls.vs_conntrack {
                return Err(NoConnection::Reused);
            }
        }
        let opens = match packet.body {
            PacketBody::Tcp { flags, .. } => {
                (flags.has(TcpFlags::SYN) || sysctls.vs_sloppy_tcp) && !flags.has(TcpFlags::RST)
            }
            PacketBody::Sctp { init, .. } => init,
            _ => true,
        };
        if !opens {
            return Err(NoConnection::Passes);
        }
        let service = match services.called(protocol, to, mark) {
            CalledService::None => return Err(NoConnection::Passes),
            CalledService::Unmodelled(what) => return Err(NoConnection::NotModelled(what)),
            CalledService::Modelled(service) => service,
        };
        let call = OpeningPacket { client: client.ip(), port: client.port(), to: to.ip() };
        let (server, template, chosen) = self.schedule(service, call, sysctls, now, chance)?;
        let mut one = IpvsConnection {
            protocol,
            client,
            virtual_address: to,
            server,
            service: (protocol, to),
            template,
            active: true,
            finished: 0,
            expires: now,
        };
        one.see(packet, false, now);
        if !(service.one_packet && protocol == Protocol::UDP) {
            self.insert(one);
        }
        Ok((one, chosen))
    }

    fn follow(
        &mut self,
        id: u64,
        packet: &Packet,
        services: &VirtualServices,
        sysctls: &Sysctls,
        now: u64,
    ) -> Result<(IpvsConnection, Option<ScheduledServer>), NoConnection> {
        let Some(one) = self.all.get_mut(&id) else {
            return Err(NoConnection::Passes);
        };
        let service = of(services, one.service);
        let there = service.is_some_and(|service| service.servers.iter().any(|server| server.address == one.server));
        if !there {
            // The packet is dropped; the sysctl also removes the connection.
            if sysctls.vs_expire_nodest_conn {
                self.remove(id);
            }
            return Err(NoConnection::Gone);
        }
        one.see(packet, false, now);
        Ok((*one, None))
    }

    fn insert(&mut self, one: IpvsConnection) {
        let id = self.next;
        self.next += 1;
        self.by_client.insert((one.protocol, one.client, one.virtual_address), id);
        self.by_server.insert((one.protocol, one.server, one.client), id);
        self.all.insert(id, one);
    }

    fn schedule(
        &mut self,
        service: &VirtualService,
        call: OpeningPacket,
        sysctls: &Sysctls,
        now: u64,
        chance: &mut Chance,
    ) -> Result<(SocketAddr, Option<TemplateKey>, Option<ScheduledServer>), NoConnection> {
        let called = (service.protocol, service.address);
        let loads = self.loads(called, service);
        let persistence = service.persistence.map(|persistence| {
            let network = Masked::network(call.client, persistence.prefix);
            let key = network.map_or(bits(call.client), |network| bits(network.address()));
            ((called, key), u64::from(persistence.seconds) * 1000)
        });
        if let Some((key, lifetime)) = persistence
            && let Some((server, expires)) = self.templates.get_mut(&key)
            && kept(service, *server, sysctls)
        {
            *expires = now + lifetime;
            return Ok((*server, Some(key), None));
        }
        let rotation = self.rotations.entry(called).or_default();
        let chosen = choose(service, rotation, &loads, call, chance).ok_or(NoConnection::NoServer)?;
        let RealServer { address: server, forwarding, .. } = service.servers[chosen.server];
        if forwarding != Forwarding::Masquerade {
            let (service, what) = (service.name(), format!("-r {server} {}", forwarding.option()));
            let why = "forwards by routing or a tunnel, which is not modelled";
            return Err(NoConnection::NotModelled(Unmodelled { service, what, why }));
        }
        if let Some((key, lifetime)) = persistence {
            self.templates.insert(key, (server, now + lifetime));
        }
        Ok((server, persistence.map(|(key, _)| key), Some(chosen)))
    }

    fn loads(&self, called: ServiceKey, service: &VirtualService) -> Vec<ServerLoad> {
        let of = |server: &RealServer| {
            let mut load = ServerLoad::default();
            for one in self.all.values().filter(|one| one.service == called && one.server == server.address) {
                if one.active { load.active += 1 } else { load.inactive += 1 }
            }
            let all = load.active + load.inactive;
            load.overloaded = server.upper != 0 && all >= u64::from(server.upper);
            load
        };
        service.servers.iter().map(of).collect()
    }
}

/// Whether a SYN replaces the connection: if it has ended (`is_new_conn_expected`), with expire_nodest_conn also if the
/// server has weight 0; never with conn_reuse_mode 0.
fn opens_anew(one: &IpvsConnection, packet: &Packet, services: &VirtualServices, sysctls: &Sysctls) -> bool {
    let PacketBody::Tcp { flags, .. } = packet.body else {
        return false;
    };
    let opens = flags.has(TcpFlags::SYN) && !flags.has(TcpFlags::ACK);
    let server = of(services, one.service).and_then(|of| of.servers.iter().find(|known| known.address == one.server));
    let quiesced = sysctls.vs_expire_nodest_conn && server.is_some_and(|server| server.weight == 0);
    opens && sysctls.vs_conn_reuse_mode != 0 && (quiesced || one.finished == BOTH)
}

fn of(services: &VirtualServices, called: ServiceKey) -> Option<&VirtualService> {
    services.find(called.0, called.1.ip(), called.1.port()).map(|at| &services.services[at])
}

/// Models `ip_vs_check_template`.
fn kept(service: &VirtualService, server: SocketAddr, sysctls: &Sysctls) -> bool {
    let known = service.servers.iter().find(|known| known.address == server);
    known.is_some_and(|known| known.weight > 0 || !sysctls.vs_expire_quiescent_template)
}
