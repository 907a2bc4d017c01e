//! Where the rules are known to differ from the promise, precisely: each with the case and the reason. They are counted,
//! and a test sees to it that each still occurs, so that none outlives its fault.

use std::net::{IpAddr, SocketAddr};

use svclab_oracle::{Cluster, Cni, Mode, Promise, Verdict};
use svclab_sim::network::{Outcomes, Verdict as Found};

/// A known difference.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// Its name.
    pub name: &'static str,
    /// The mode that it is of; none is every mode.
    pub mode: Option<Mode>,
    /// What differs, and why it stays.
    pub reason: &'static str,
    applies: fn(&Cluster, &Promise, &Outcomes) -> bool,
}

/// All of them.
pub const ALL: [Exception; 1] = [
    Exception {
        name: "a-service-address-as-source",
        mode: Some(Mode::Ipvs),
        reason: "over IPv6, where pods' links have no address of their own, masquerade and the node's own calls take the \
                 address of the node that is most like the pod's (RFC 6724, rule 8), and services' addresses on \
                 kube-ipvs0 are among them: the pod sees a cluster IP where it should see the node's. Addresses that \
                 were bound as deprecated would not be taken (rule 3)",
        applies: service_address_as_source,
    },
];

/// The exception that a disagreement falls under, by its place in [`ALL`].
#[must_use]
pub fn find(cluster: &Cluster, promise: &Promise, found: &Outcomes) -> Option<usize> {
    let mode = cluster.world.proxy.mode;
    let of_mode = |exception: &Exception| exception.mode.is_none_or(|of| of == mode);
    ALL.iter().position(|exception| of_mode(exception) && (exception.applies)(cluster, promise, found))
}

fn service_address_as_source(cluster: &Cluster, promise: &Promise, found: &Outcomes) -> bool {
    let bare = cluster.world.cni == Cni::PointToPoint;
    let addresses = addresses_of_services(cluster);
    let is_service = |saw: &SocketAddr| saw.is_ipv6() && addresses.contains(&saw.ip());
    let fits = |verdict: &Found| match (verdict, &promise.verdict) {
        (Found::Answered { at, saw, .. }, Verdict::Deliver(delivery)) => delivery.backends.iter().any(|backend| {
            let service = backend.masqueraded && is_service(saw);
            backend.address == *at && (service || backend.sees.contains(&saw.ip()))
        }),
        // The node's own calls of its pods choose their source in the same way.
        (Found::Answered { saw, .. }, Verdict::Untouched) => is_service(saw),
        _ => false,
    };
    bare && found.outcomes.iter().all(|one| fits(&one.verdict))
}

fn addresses_of_services(cluster: &Cluster) -> Vec<IpAddr> {
    let specs = cluster.objects.services.iter().filter_map(|service| service.spec.as_ref());
    let fixed = specs.flat_map(|spec| spec.cluster_ips.iter().chain(&spec.external_ips).flatten());
    let statuses = cluster.objects.services.iter().filter_map(|service| service.status.as_ref());
    let ingress = statuses.filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref()).flatten();
    let balanced = ingress.filter_map(|entry| entry.ip.as_ref());
    fixed.chain(balanced).filter_map(|text| text.parse().ok()).collect()
}
