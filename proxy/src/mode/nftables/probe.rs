//! What the kernel is asked to make before anything depends on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::layout;
use super::ledger::Ledger;
use super::objects::render;
use super::shared::{At, Does, Shared};
use super::slots::Slots;
use super::wanted::Wanted;
use crate::model::{Family, ObjectKey, Protocol, ServicePortName};
use crate::nftables::Change;
use crate::nftables::change::TableChange;
use crate::plan::{
    AllowedSources, BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, Masquerade, NoLocalEndpoints,
    ServicePortPlan, Verdict,
};

/// A table that has each kind of thing in it that tables of this mode have: what a kernel can make of it, it can make of all.
pub fn probe(family: Family) -> Change {
    let node = layout::probe_node(family);
    let plan = probed(family);
    let objects = render(&plan, &node, &Slots::default());
    let ledger: Ledger = [(plan.name, objects)].into_iter().collect();
    let wanted = Wanted::new(&node, &ledger);
    let mut change = wanted.anew(TableChange::Make).change;
    for at in [At::Address, At::NodePort] {
        for does in [Does::External(2), Does::Local { local: 2, all: 3 }] {
            let all = Shared { at, protocol: Protocol::Tcp, does }.with_targets();
            change.add_chains.extend(all.map(|shared| (shared.name(), shared.chain(&node))));
        }
    }
    change.add_elements = wanted.elements().collect();
    // No packet is to meet it.
    change.add_chains.retain(|_, chain| chain.base.is_none());
    change
}

/// A service port with session affinity, source ranges and a hairpin.
fn probed(family: Family) -> ServicePortPlan {
    let range = family.loopback_range();
    let other: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let action = FrontendAction { verdict: Verdict::Deliver(BackendSet::Cluster), masquerade: Masquerade::Always };
    ServicePortPlan {
        name: ServicePortName {
            service: ObjectKey { namespace: "probe".to_owned(), name: "probe".to_owned() },
            port: String::new(),
            protocol: Protocol::Tcp,
        },
        port: 1,
        cluster_backends: vec![SocketAddr::new(range.network(), 1)],
        local_backends: Vec::new(),
        hairpins: vec![range.network()],
        serving: Vec::new(),
        affinity: Some(Duration::from_secs(1)),
        internal: Some(ClusterIpFrontend { address: range.network(), action }),
        external: Some(ExternalFrontends {
            node_port: Some(1),
            external_ips: Vec::new(),
            load_balancer_ips: vec![other],
            of_other_machines: Vec::new(),
            allowed_sources: Some(AllowedSources { ranges: vec![range], load_balancer_ips: false }),
            action,
            short_circuit: None,
        }),
        health_check: None,
        no_local_endpoints: NoLocalEndpoints::default(),
        hints_ignored: None,
    }
}
