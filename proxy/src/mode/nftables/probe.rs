use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::counters::CounterNames;
use super::desired_table::DesiredTable;
use super::endpoint_index::EndpointIndex;
use super::layout;
use super::ledger::ElementLedger;
use super::objects::render;
use super::shared_chains::{ChainRole, FrontendKind, SharedChain};
use super::slots::SlotChoice;
use crate::model::{Family, FlowFate, LoadBalancing, ObjectKey, Protocol, ServicePortName, ShortString};
use crate::nftables::NftChange;
use crate::nftables::change::TableAction;
use crate::plan::{
    AllowedSources, BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, FrontendVerdict, Masquerade,
    NoLocalEndpoints, NodePlan, ServicePortPlan,
};

/// Returns a change with each kind of object, to test the kernel; with counters if asked for.
pub fn probe(family: Family, counts: bool) -> NftChange {
    let node = NodePlan { count_services: counts, ..layout::probe_node(family) };
    let plan = probed(family);
    let mut objects = render(&plan, &node, &EndpointIndex::default());
    objects.count(CounterNames::of(&plan.name).filter(|_| counts));
    let ledger: ElementLedger = [(plan.name, objects)].into_iter().collect();
    let wanted = DesiredTable::new(&node, &ledger, &[]);
    let mut change = wanted.create_table(TableAction::Make).change;
    for kind in [FrontendKind::Address, FrontendKind::NodePort] {
        let [two, three] = [2, 3].map(SlotChoice::Random);
        for role in [ChainRole::External(two), ChainRole::Local { local: two, all: three }] {
            let all = SharedChain { kind, protocol: Protocol::Tcp, role }.with_targets();
            change.add_chains.extend(all.map(|shared| (shared.name(), shared.chain(&node))));
        }
    }
    change.add_elements = wanted.elements().collect();
    // Without base chains no packet passes the table.
    change.add_chains.retain(|_, chain| chain.base.is_none());
    change
}

/// Returns a change with a rule of consistent hashing, to test whether the kernel has the expression `hash`.
pub fn hash_probe(family: Family) -> NftChange {
    let node = layout::probe_node(family);
    let role = ChainRole::Pick(SlotChoice::Hash { slots: 2, with_port: true });
    let chain = SharedChain { kind: FrontendKind::Address, protocol: Protocol::Tcp, role };
    let sets = layout::sets(&node, |_| 1).into_iter().filter(|(name, _)| *name == layout::SERVICE_ENDPOINTS);
    NftChange {
        table: TableAction::Make,
        add_sets: sets.map(|(name, set)| (name.into(), set)).collect(),
        add_chains: [(chain.name(), chain.chain(&node))].into(),
        ..NftChange::default()
    }
}

fn probed(family: Family) -> ServicePortPlan {
    let range = family.loopback_range();
    let other: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let action =
        FrontendAction { verdict: FrontendVerdict::Deliver(BackendSet::Cluster), masquerade: Masquerade::Always };
    ServicePortPlan {
        name: ServicePortName {
            service: ObjectKey::new("probe", "probe"),
            port: ShortString::default(),
            protocol: Protocol::Tcp,
        },
        port: 1,
        cluster_backends: vec![SocketAddr::new(range.network(), 1)],
        local_backends: Vec::new(),
        hairpins: vec![range.network()],
        serving: Vec::new(),
        flow_fate: FlowFate::Keep,
        load_balancing: LoadBalancing::Random,
        annotations_ignored: Vec::new(),
        affinity: Some(Duration::from_secs(1)),
        affinity_across_ports: false,
        internal: Some(ClusterIpFrontend { address: range.network(), action }),
        external: Some(ExternalFrontends {
            node_port: Some(1),
            external_ips: Vec::new(),
            load_balancer_ips: vec![other],
            of_other_machines: Vec::new(),
            annotated_sources: None,
            allowed_sources: Some(Box::new(AllowedSources { ranges: vec![range], own_addresses: false })),
            action,
            short_circuit: None,
        }),
        health_check: None,
        no_local_endpoints: NoLocalEndpoints::default(),
        hints_ignored: None,
    }
}
