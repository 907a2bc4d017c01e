//! Uses route netlink, not `ip`. Dumps run one after another: a socket allows one at a time.

mod ipsec;
mod links;
mod policy;
mod routes;

use std::fmt::Display;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::{Handle, IpVersion};

use super::{files, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;
use crate::network::Network;

pub(super) async fn read() -> (Option<Network>, Vec<Unread>) {
    let (connection, handle, _) = match rtnetlink::new_connection() {
        Ok(opened) => opened,
        Err(error) => return (None, vec![failed("opening a route netlink socket", error)]),
    };
    let task = tokio::spawn(connection);
    let answer = dump(&handle).await;
    task.abort();
    answer
}

fn failed(what: &str, error: impl Display) -> Unread {
    unread(ArchivePart::Network.path(), format!("{what}: {error}"))
}

async fn dump(handle: &Handle) -> (Option<Network>, Vec<Unread>) {
    // Read first, because all other messages name interfaces by number.
    let links = match handle.link().get().execute().try_collect::<Vec<_>>().await {
        Ok(links) => links,
        Err(error) => return (None, vec![failed("listing interfaces", error)]),
    };
    let names = links::InterfaceNames::of(&links);
    let mut network =
        Network { links: links.iter().map(|link| links::link(link, &names)).collect(), ..Network::default() };
    let (mut unread, mut narrower) = (Vec::new(), 0);
    let mut note = |what: &str, error: rtnetlink::Error| unread.push(failed(what, error));

    match handle.address().get().execute().try_collect::<Vec<_>>().await {
        Ok(found) => network.addresses = found.iter().filter_map(|found| links::address(found, &names)).collect(),
        Err(error) => note("listing addresses", error),
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut every = RouteMessage::default();
        every.header.address_family = family;
        match handle.route().get(every).execute().try_collect::<Vec<_>>().await {
            Ok(found) => {
                narrower += found.iter().filter(|found| routes::is_narrower(found)).count();
                network.routes.extend(found.iter().filter_map(|found| routes::route(found, &names)));
            }
            Err(error) => note("listing routes", error),
        }
    }
    for (version, family) in [(IpVersion::V4, "ipv4"), (IpVersion::V6, "ipv6")] {
        match handle.rule().get(version).execute().try_collect::<Vec<_>>().await {
            Ok(found) => network.rules.extend(found.iter().map(|found| policy::rule(found, family))),
            // The kernel has no policy routing in this family.
            Err(rtnetlink::Error::NetlinkError(refusal)) if refusal.raw_code() == -nix::libc::EOPNOTSUPP => {}
            Err(error) => note("listing rules of policy routing", error),
        }
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let request = handle.neighbours().get().set_address_family(family);
        match request.execute().try_collect::<Vec<_>>().await {
            Ok(found) => {
                network.neighbours.extend(found.iter().filter_map(|found| links::neighbour(found, &names)));
                network.unresolved.extend(found.iter().filter_map(|found| links::unresolved(found, &names)));
            }
            Err(error) => note("listing neighbours", error),
        }
    }
    let request = handle.neighbours().get().set_address_family(AddressFamily::Bridge);
    match request.execute().try_collect::<Vec<_>>().await {
        Ok(found) => network.forwarding.extend(found.iter().filter_map(|found| links::forwarding(found, &names))),
        // The kernel has no bridge driver.
        Err(rtnetlink::Error::NetlinkError(refusal)) if refusal.raw_code() == -nix::libc::EOPNOTSUPP => {}
        Err(error) => note("listing what bridges have learned", error),
    }
    match ipsec::read() {
        Ok(found) => network.ipsec = found,
        Err(error) => unread.push(failed("listing policies of IPsec", error)),
    }
    network.registered = files::net("igmp").map(|text| registered(&text)).unwrap_or_default();
    if narrower > 0 {
        unread.push(failed(
            "listing routes",
            format!("{narrower} hold for one source range or TOS only, which is left out"),
        ));
    }
    (Some(network), unread)
}

/// Reads the interfaces of `/proc/net/igmp`: a line that begins with a number is an interface's, in the order of
/// `for_each_netdev` (`igmp_mc_get_first`, net/ipv4/igmp.c), unlike the order of netlink's dumps.
fn registered(text: &str) -> Vec<String> {
    let own = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let names = own.filter_map(|line| line.split_once('\t')?.1.rsplit_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// `None` if `length` exceeds the family's longest prefix.
fn range(address: IpAddr, length: u8) -> Option<IpNet> {
    IpNet::new(address, length).ok()
}

/// Returns the address of 0.0.0.0/0 or ::/0, which the kernel omits.
fn nowhere(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(IpAddr::from([0; 4])),
        AddressFamily::Inet6 => Some(IpAddr::from([0; 16])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_registration_is_that_of_igmp() {
        let text = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                    9\teth0      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n2\tveth1@2   :     1      V3\n";
        assert_eq!(registered(text), ["lo", "eth0", "veth1@2"]);
    }
}
