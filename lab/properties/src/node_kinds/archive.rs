//! Archives that lack something, or come from old proxies.

use svclab_oracle::ClusterModel;
use svclab_oracle::generate::{DetectRecipe, NodePortsRecipe, Recipe};
use svclab_snapshot::Snapshot;

/// As on k3s and RKE2, where kube-proxy runs inside of another process.
pub(super) fn no_configuration(snapshot: &mut Snapshot) {
    snapshot.proxy_config = None;
}

pub(super) fn by_interface(recipe: &mut Recipe) {
    recipe.proxy.detect = DetectRecipe::Interface;
    recipe.point_to_point = true;
}

pub(super) fn no_detection(recipe: &mut Recipe) {
    recipe.proxy.detect = DetectRecipe::Off;
}

pub(super) fn first_node(recipe: &mut Recipe) {
    recipe.proxy.node_ports = NodePortsRecipe::FirstNode;
}

pub(super) fn no_nodes(snapshot: &mut Snapshot) {
    if let Some(objects) = &mut snapshot.objects {
        objects.nodes.clear();
    }
}

pub(super) fn no_pod_range(snapshot: &mut Snapshot) {
    let nodes = snapshot.objects.iter_mut().flat_map(|objects| &mut objects.nodes);
    for spec in nodes.filter_map(|node| node.spec.as_mut()) {
        (spec.pod_cidr, spec.pod_cidrs) = (None, None);
    }
}

/// Every endpoint is of this node, or of none.
pub(super) fn own_endpoints(cluster: &mut ClusterModel) {
    for slice in &mut cluster.objects.slices {
        let endpoints = slice.endpoints.iter_mut();
        endpoints.for_each(|endpoints| endpoints.retain(|endpoint| endpoint.node_name.as_deref() == Some(super::NODE)));
    }
}

/// kube-proxy before 1.19 writes five digits.
pub(super) fn five_digits(snapshot: &mut Snapshot) {
    for text in [&mut snapshot.nft_v4, &mut snapshot.nft_v6].into_iter().flatten() {
        let word = |word: &str| match word.parse::<f64>() {
            Ok(number) if word.starts_with("0.") => format!("{number:.5}000000"),
            _ => word.to_owned(),
        };
        let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n";
        *text = text.lines().map(line).collect();
    }
}
