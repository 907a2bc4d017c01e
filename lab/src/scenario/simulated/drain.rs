//! Applies the state that a proxy in IPVS mode keeps from existing virtual servers: a removed destination gets weight 0
//! while it has connections, and a kept one keeps its place in the kernel's list.
//!
//! `svcproxy render` prints a clean start without such state. `--ipvs-drain-limit` is not modelled.

use std::net::SocketAddr;

use svclab_sim::ipvs::{VirtualService, VirtualServices};
use svclab_sim::protocol::Protocol;

/// Changes `wanted` to the result with the existing virtual servers `found`. `connections` counts a destination's connections.
pub(super) fn keep_drained(
    found: &VirtualServices,
    wanted: &mut VirtualServices,
    connections: impl Fn(&VirtualService, SocketAddr) -> usize,
) {
    for service in &mut wanted.services {
        let same = |other: &&VirtualService| (other.protocol, other.address) == (service.protocol, service.address);
        let Some(found) = found.services.iter().find(same) else { continue };
        let is_found = |address: SocketAddr| found.servers.iter().any(|server| server.address == address);
        // The kernel adds new destinations at the head of its list.
        let (stay, mut all): (Vec<_>, Vec<_>) = service.servers.drain(..).partition(|server| is_found(server.address));
        for server in &found.servers {
            match stay.iter().find(|other| other.address == server.address) {
                Some(wanted) => all.push(*wanted),
                None if service.protocol == Protocol::TCP && connections(found, server.address) > 0 => {
                    let mut leaving = *server;
                    leaving.weight = 0;
                    all.push(leaving);
                }
                None => {}
            }
        }
        service.servers = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(text: &str) -> VirtualServices {
        VirtualServices::read(text).unwrap()
    }

    fn service(option: &str, servers: &[(u8, u8)]) -> String {
        let head = format!("-A {option} 10.96.0.1:80 -s rr\n");
        let line = |(at, weight): &(u8, u8)| format!("-a {option} 10.96.0.1:80 -r 10.244.0.{at}:80 -m -w {weight}\n");
        head + &servers.iter().map(line).collect::<String>()
    }

    #[test]
    fn a_leaving_destination_keeps_its_connections_and_a_staying_one_its_place() {
        let found = services(&service("-t", &[(5, 1), (2, 1), (4, 1), (3, 0)]));
        let mut wanted = services(&service("-t", &[(1, 1), (2, 1), (3, 1), (6, 1)]));
        keep_drained(&found, &mut wanted, |_, server| usize::from(server.ip().to_string() == "10.244.0.5"));
        assert_eq!(wanted.to_string(), service("-t", &[(5, 0), (2, 1), (3, 1), (1, 1), (6, 1)]));
    }

    #[test]
    fn udp_destinations_do_not_drain_and_new_services_are_unchanged() {
        let mut wanted = services(&service("-u", &[(1, 1)]));
        keep_drained(&services(&service("-u", &[(2, 1)])), &mut wanted, |_, _| 9);
        assert_eq!(wanted.to_string(), service("-u", &[(1, 1)]));
        keep_drained(&services(&service("-t", &[(2, 1)])), &mut wanted, |_, _| 9);
        assert_eq!(wanted.to_string(), service("-u", &[(1, 1)]));
    }
}
