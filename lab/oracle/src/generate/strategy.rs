//! Draws shapes as rarely as real clusters have them. Values shrink towards the simplest.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::recipe::{
    AnnotationRecipe, ClaimRecipe, DeclaredAddresses, DetectRecipe, DuplicateEndpoint, EndpointCondition,
    EndpointRecipe, Families, HintsRecipe, IngressMode, NodePortsRecipe, NodeRecipe, PodRecipe, PortRecipe,
    ProxyRecipe, Recipe, ServiceFamilies, ServiceKind, ServiceRecipe, SourceRangeRecipe,
};
use crate::settings::NodePortAddress;
use crate::world::ReversePath;

/// Draws at most three nodes, six pods and four services.
pub fn recipes() -> impl Strategy<Value = Recipe> {
    let families = prop_oneof![3 => Just(Families::V4), 1 => Just(Families::V6), 2 => Just(Families::Dual)];
    // A value that is drawn last does not change the rest of a seed's cluster.
    let machines = (families, any::<bool>(), vec(node(), 1..=3), vec(pod(), 1..=6));
    let reverse_path = prop_oneof![Just(ReversePath::Off), Just(ReversePath::Loose)];
    let wiring = (rarely(0.4), rarely(0.3), reverse_path, rarely(0.3));
    let whole = (machines, vec(service(), 1..=4), proxy(), wiring, rarely(0.5), annotations());
    whole.prop_map(|((families, point_to_point, nodes, pods), services, proxy, wiring, service_cidrs, annotations)| {
        let services = annotated(services, annotations);
        let (link_gateways, overlay, reverse_path, second) = wiring;
        Recipe {
            families,
            point_to_point,
            link_gateways,
            overlay,
            second,
            reverse_path,
            nodes,
            pods,
            services,
            proxy,
            service_cidrs,
        }
    })
}

pub fn recipes_on(frame: Recipe) -> impl Strategy<Value = Recipe> {
    let whole = (vec(service(), 1..=4), proxy(), rarely(0.5), annotations());
    whole.prop_map(move |(services, proxy, service_cidrs, annotations)| Recipe {
        services: annotated(services, annotations),
        proxy,
        service_cidrs,
        ..frame.clone()
    })
}

fn annotated(services: Vec<ServiceRecipe>, annotations: Vec<AnnotationRecipe>) -> Vec<ServiceRecipe> {
    let each = services.into_iter().zip(annotations);
    each.map(|(service, annotations)| ServiceRecipe { annotations, ..service }).collect()
}

/// Draws the annotations of four services.
fn annotations() -> impl Strategy<Value = Vec<AnnotationRecipe>> {
    let source_ranges = prop_oneof![5 => Just(Vec::new()), 1 => vec(source(), 1..=2)];
    (vec((source_ranges, rarely(0.2)), 4), vec(rarely(0.4), 4)).prop_map(|(annotations, across_ports)| {
        let each = annotations.into_iter().zip(across_ports);
        let each = each.map(|((source_ranges, local_fallback), affinity_across_ports)| AnnotationRecipe {
            source_ranges,
            local_fallback,
            affinity_across_ports,
        });
        each.collect()
    })
}

fn node() -> impl Strategy<Value = NodeRecipe> {
    let declared = prop_oneof![
        5 => Just(DeclaredAddresses::Firsts), 1 => Just(DeclaredAddresses::All), 1 => Just(DeclaredAddresses::External), 1 => Just(DeclaredAddresses::OddName),
    ];
    (option::weighted(0.9, 0..3u8), rarely(0.2), declared).prop_map(|(zone, second_address, declared)| NodeRecipe {
        zone,
        second_address,
        declared,
    })
}

fn pod() -> impl Strategy<Value = PodRecipe> {
    (0..3u8, rarely(0.15)).prop_map(|(node, host_network)| PodRecipe { node, host_network })
}

fn proxy() -> impl Strategy<Value = ProxyRecipe> {
    let detect = prop_oneof![
        4 => Just(DetectRecipe::ClusterCidr),
        2 => Just(DetectRecipe::NodeCidr),
        2 => Just(DetectRecipe::Interface),
        1 => Just(DetectRecipe::Off),
    ];
    let node_ports = prop_oneof![
        6 => Just(NodePortsRecipe::Unset),
        2 => Just(NodePortsRecipe::Word(NodePortAddress::Primary)),
        1 => Just(NodePortsRecipe::Word(NodePortAddress::All)),
        2 => Just(NodePortsRecipe::NodeNetwork),
        1 => Just(NodePortsRecipe::FirstNode),
        1 => Just(NodePortsRecipe::WithLoopback),
    ];
    (detect, rarely(0.2), node_ports, rarely(0.8)).prop_map(
        |(detect, masquerade_all, node_ports, localhost_node_ports)| ProxyRecipe {
            detect,
            masquerade_all,
            node_ports,
            localhost_node_ports,
        },
    )
}

pub(super) fn service() -> impl Strategy<Value = ServiceRecipe> {
    let kind = prop_oneof![
        5 => Just(ServiceKind::ClusterIp),
        5 => Just(ServiceKind::NodePort),
        7 => Just(ServiceKind::LoadBalancer),
        1 => Just(ServiceKind::Headless),
        1 => Just(ServiceKind::ExternalName),
        1 => Just(ServiceKind::OtherProxy),
    ];
    let stack = prop_oneof![1 => Just(ServiceFamilies::First), 1 => Just(ServiceFamilies::Second), 2 => Just(ServiceFamilies::Both)];
    let hints = prop_oneof![
        5 => Just(HintsRecipe::None), 2 => Just(HintsRecipe::OwnZone), 2 => Just(HintsRecipe::OwnNode), 2 => Just(HintsRecipe::Odd),
    ];
    let spec = (kind, stack, rarely(0.25), rarely(0.4), option::weighted(0.2, 1..=60_000u16), vec(port(), 1..=3));
    let mode = prop_oneof![2 => Just(IngressMode::Unset), 2 => Just(IngressMode::Vip), 1 => Just(IngressMode::Proxy), 1 => Just(IngressMode::Newer)];
    let faces = (vec(0..3u8, 0..=2), vec((0..3u8, mode), 0..=2), sources());
    let slices = (vec(endpoint(), 0..=6), hints, rarely(0.2), rarely(0.15), rarely(0.15));
    let what = 1..1u8 << ClaimRecipe::WHAT.len();
    let claims = option::weighted(0.3, (0..4u8, what).prop_map(|(whose, what)| ClaimRecipe { whose, what }));
    let disputes = (claims, option::weighted(0.5, 0..3u8));
    let newer = prop_oneof![8 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8), 1 => Just(4u8), 1 => Just(8u8)];
    (spec, faces, slices, some_bits(ServiceRecipe::LEFT_OUT.len()), disputes, newer).prop_map(
        |(spec, faces, slices, left_out, (claims, created), newer)| {
            let (kind, stack, internal_local, external_local, affinity, ports) = spec;
            let (external_ips, ingress, source_ranges) = faces;
            let (endpoints, hints, other_targets, other_names, disjoint) = slices;
            ServiceRecipe {
                kind,
                stack,
                internal_local,
                external_local,
                affinity,
                ports,
                external_ips,
                ingress,
                source_ranges,
                endpoints,
                hints,
                other_targets,
                other_names,
                disjoint,
                left_out,
                claims,
                created,
                annotations: AnnotationRecipe::default(),
                newer,
            }
        },
    )
}

fn some_bits(number: usize) -> impl Strategy<Value = u16> {
    let all = u16::MAX >> (16 - number);
    prop_oneof![3 => Just(0), 3 => (0..number).prop_map(|bit| 1 << bit), 2 => 0..=all]
}

fn source() -> impl Strategy<Value = SourceRangeRecipe> {
    prop_oneof![
        Just(SourceRangeRecipe::FirstClient),
        Just(SourceRangeRecipe::FirstNode),
        Just(SourceRangeRecipe::NodeNetwork),
        Just(SourceRangeRecipe::Pods),
        Just(SourceRangeRecipe::Nobody),
        Just(SourceRangeRecipe::Everybody),
    ]
}

fn sources() -> impl Strategy<Value = Vec<SourceRangeRecipe>> {
    prop_oneof![3 => Just(Vec::new()), 2 => vec(source(), 1..=2)]
}

fn port() -> impl Strategy<Value = PortRecipe> {
    let protocol = prop_oneof![5 => Just(0u8), 3 => Just(1u8), 1 => Just(2u8)];
    (protocol, rarely(0.8), rarely(0.3)).prop_map(|(protocol, node_port, same_number)| PortRecipe {
        protocol,
        node_port,
        same_number,
    })
}

pub(super) fn endpoint() -> impl Strategy<Value = EndpointRecipe> {
    let slice = prop_oneof![3 => Just(0u8), 1 => Just(1u8), 1 => Just(2u8)];
    let other = prop_oneof![3 => Just(EndpointCondition::Terminating), 2 => Just(EndpointCondition::TerminatingServing), 1 => condition()];
    let copy = prop_oneof![85 => Just(DuplicateEndpoint::None), 10 => Just(DuplicateEndpoint::Same), 5 => other.prop_map(DuplicateEndpoint::Other)];
    let left_out = some_bits(EndpointRecipe::LEFT_OUT.len()).prop_map(|bits| u8::try_from(bits).unwrap_or_default());
    let left_out = prop_oneof![3 => Just(0u8), 1 => left_out];
    (any::<u8>(), condition(), slice, copy, rarely(0.05), left_out, any::<u8>()).prop_map(
        |(pod, condition, slice, copy, without_node, left_out, hinted)| EndpointRecipe {
            pod,
            condition,
            slice,
            copy,
            without_node,
            left_out,
            hinted,
        },
    )
}

pub(super) fn condition() -> impl Strategy<Value = EndpointCondition> {
    prop_oneof![
        8 => Just(EndpointCondition::Ready),
        1 => Just(EndpointCondition::Unspecified),
        2 => Just(EndpointCondition::Unready),
        1 => Just(EndpointCondition::ServingOnly),
        3 => Just(EndpointCondition::TerminatingServing),
        1 => Just(EndpointCondition::Terminating),
        1 => Just(EndpointCondition::PublishedTerminating),
    ]
}

fn rarely(probability: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(probability)
}
