//! What a proxy in IPVS mode leaves of the virtual servers that it finds: destinations that leave keep the connections that they
//! have, with weight 0, and those that stay keep their places in the kernel's list.
//!
//! `svcproxy render` prints what a clean start leaves, which knows of neither. The limit of `--ipvs-drain-limit` is not modelled.

use std::net::SocketAddr;

use svclab_sim::ipvs::{VirtualService, VirtualServices};
use svclab_sim::protocol::Protocol;

/// Changes `wanted` into what it becomes on a machine that has `found`; `connections` counts what a destination of a service has.
pub(super) fn over(
    found: &VirtualServices,
    wanted: &mut VirtualServices,
    connections: impl Fn(&VirtualService, SocketAddr) -> usize,
) {
    for service in &mut wanted.services {
        let same = |other: &&VirtualService| (other.protocol, other.address) == (service.protocol, service.address);
        let Some(found) = found.services.iter().find(same) else { continue };
        let is_found = |address: SocketAddr| found.servers.iter().any(|server| server.address == address);
        // Who is added last is the first in the list, as they already are among themselves.
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
    fn who_leaves_keeps_connections_and_who_stays_a_place() {
        // Lines stand in the order in which destinations were added.
        let found = services(&service("-t", &[(5, 1), (2, 1), (4, 1), (3, 0)]));
        let mut wanted = services(&service("-t", &[(1, 1), (2, 1), (3, 1), (6, 1)]));
        over(&found, &mut wanted, |_, server| usize::from(server.ip().to_string() == "10.244.0.5"));
        assert_eq!(wanted.to_string(), service("-t", &[(5, 0), (2, 1), (3, 1), (1, 1), (6, 1)]));
    }

    #[test]
    fn datagrams_are_not_waited_for_and_a_new_service_is_as_wanted() {
        let mut wanted = services(&service("-u", &[(1, 1)]));
        over(&services(&service("-u", &[(2, 1)])), &mut wanted, |_, _| 9);
        assert_eq!(wanted.to_string(), service("-u", &[(1, 1)]));
        over(&services(&service("-t", &[(2, 1)])), &mut wanted, |_, _| 9);
        assert_eq!(wanted.to_string(), service("-u", &[(1, 1)]));
    }
}
