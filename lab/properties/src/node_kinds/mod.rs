//! Healthy nodes as clusters have them: a generated cluster's snapshot with the rules, links and routes of CNIs, cloud
//! providers and other programs, or with parts missing. An audit must find nothing there, and must still find a fault of
//! the proxy.

mod archive;
mod balancers;
mod cni;
mod host;
mod matrix;
mod network;
mod ovs;
mod rules;

use svclab_audit::audit::{AuditOptions, Finding, Report, audit};
use svclab_oracle::generate::{
    DeclaredAddresses, EndpointRecipe, Families, IngressMode, NodeRecipe, PodRecipe, PortRecipe, Recipe, ServiceKind,
    ServiceRecipe, SourceRangeRecipe,
};
use svclab_oracle::{ClusterModel, Mode, Scheduler};
use svclab_snapshot::Snapshot;

use crate::mutants::{Mutant, catalogue, printed};
use crate::node_states::read;
use crate::proxies::Proxies;
use crate::snapshots::snapshot;
use crate::sweep::in_mode;

pub use matrix::table;

/// The node that is audited: it has local endpoints, and other nodes have more.
const NODE: &str = "node-a";

/// A kind of node.
#[derive(Debug, Clone, Copy)]
pub struct NodeKind {
    pub name: &'static str,
    pub modes: &'static [Mode],
    wiring: fn(&mut Recipe),
    cluster: fn(&mut ClusterModel),
    node: fn(&mut Snapshot),
    /// Whether another program masquerades in the proxy's place.
    masquerades: bool,
}

impl NodeKind {
    const fn new(name: &'static str, node: fn(&mut Snapshot)) -> NodeKind {
        NodeKind { name, modes: &Mode::ALL, wiring: |_| {}, cluster: |_| {}, node, masquerades: false }
    }

    const fn wired(self, wiring: fn(&mut Recipe)) -> NodeKind {
        NodeKind { wiring, ..self }
    }

    const fn of(self, cluster: fn(&mut ClusterModel)) -> NodeKind {
        NodeKind { cluster, ..self }
    }

    const fn masquerading(self) -> NodeKind {
        NodeKind { masquerades: true, ..self }
    }

    const fn modes(self, modes: &'static [Mode]) -> NodeKind {
        NodeKind { modes, ..self }
    }

    /// Returns the snapshot; with a mutant, of the broken twin. The error names a refused object or line, or says that
    /// the mutant changes nothing.
    pub fn snapshot(&self, mode: Mode, mutant: Option<&Mutant>) -> Result<Snapshot, String> {
        let mut recipe = base();
        (self.wiring)(&mut recipe);
        let mut cluster = in_mode(&recipe, mode);
        cluster.world.proxy.scheduler = Scheduler::RoundRobin;
        (self.cluster)(&mut cluster);
        let mut dump = Proxies::synced(&cluster, NODE)?.dump();
        if let Some(mutant) = mutant {
            let mut state = read(&dump).map_err(|error| error.to_string())?;
            if !mutant.apply(&mut state) {
                return Err(format!("{:?} changes nothing", mutant.name));
            }
            dump = printed(&state);
        }
        let mut snapshot = snapshot(&cluster, NODE, &dump);
        (self.node)(&mut snapshot);
        if mode == Mode::Nftables
            && let (Some(saved), Some(nft)) = (&snapshot.nft_v4, &mut snapshot.nft)
        {
            // The listing shows that the proxy's table is younger.
            nft.insert_str(0, &rules::as_nft(saved));
        }
        Ok(snapshot)
    }

    /// Returns the faults of the kind's broken twins.
    pub fn twins(&self, mode: Mode) -> Vec<Mutant> {
        let of_masquerade = |name: &str| name.contains("masqueraded");
        twins(mode).into_iter().filter(|twin| !(self.masquerades && of_masquerade(twin.name))).collect()
    }

    /// Returns false alarms and missed twins.
    pub fn problems(&self, mode: Mode) -> Vec<String> {
        let name = format!("{} in {} mode", self.name, mode.name());
        let mut problems = match self.audit(mode, None) {
            Ok(report) => {
                let finding = |one: &Finding| format!("{name}: {} of {}: {}", one.kind, one.service, one.cause);
                let open = report.calls - report.judged;
                let open = (open > 0).then(|| format!("{name}: {open} calls not judged"));
                report.wrong().map(finding).chain(open).collect()
            }
            Err(error) => vec![format!("{name}: {error}")],
        };
        for twin in self.twins(mode) {
            match self.audit(mode, Some(&twin)) {
                Ok(report) if !report.is_clean() => {}
                Ok(_) => problems.push(format!("{name}: missed: {}", twin.name)),
                Err(error) => problems.push(format!("{name}: {}: {error}", twin.name)),
            }
        }
        problems
    }

    pub fn audit(&self, mode: Mode, mutant: Option<&Mutant>) -> Result<Report, String> {
        audit(&self.snapshot(mode, mutant)?, &AuditOptions::default()).map_err(|error| error.to_string())
    }
}

fn twins(mode: Mode) -> Vec<Mutant> {
    let names: &[&str] = match mode {
        Mode::Iptables => &["nothing is masqueraded", "the first endpoint's rule is missing"],
        Mode::Ipvs => &["nothing marked is masqueraded", "the first real server is missing"],
        Mode::Nftables => &["nothing is masqueraded", "each draw is among one fewer"],
        Mode::Userspace => &["incoming packets are not redirected", "no port listens"],
        Mode::Other => &[],
    };
    catalogue(mode).into_iter().filter(|mutant| names.contains(&mutant.name)).collect()
}

pub const ALL: &[NodeKind] = &[
    NodeKind::new("no other program", |_| {}),
    NodeKind::new("flannel", cni::flannel).wired(|recipe| recipe.overlay = true),
    NodeKind::new("flannel, old", cni::old_flannel),
    NodeKind::new("Calico", cni::calico).wired(|recipe| recipe.point_to_point = true),
    NodeKind::new("AKS", cni::aks),
    NodeKind::new("Antrea", ovs::antrea),
    NodeKind::new("OpenShift SDN", ovs::openshift),
    NodeKind::new("kube-ovn", ovs::kube_ovn).masquerading(),
    NodeKind::new("kindnet", cni::kindnet).wired(|recipe| (recipe.point_to_point, recipe.link_gateways) = (true, true)),
    NodeKind::new("k3s: flannel, network policies", cni::k3s).wired(|recipe| recipe.overlay = true),
    NodeKind::new("flannel by iptables-legacy", cni::flannel_by_legacy).wired(|recipe| recipe.overlay = true),
    NodeKind::new("docker", host::docker).of(host::docker_address),
    NodeKind::new("firewalld", host::firewalld),
    NodeKind::new("ufw", host::ufw),
    NodeKind::new("Tailscale", host::tailscale).of(host::tailscale_address),
    NodeKind::new("Istio ambient", host::istio_ambient),
    NodeKind::new("k3s ServiceLB", balancers::portmap).of(balancers::service_lb),
    NodeKind::new("k3s ServiceLB, public addresses", |_| {}).of(balancers::translated_addresses),
    NodeKind::new("kube-vip, leader", balancers::vip_here).of(balancers::vip_of_node),
    NodeKind::new("kube-vip, another node leads", |_| {}).of(balancers::vip),
    NodeKind::new("external IPs that are nodes' own", |_| {}).of(balancers::external_ips),
    NodeKind::new("no configuration in the archive", archive::no_configuration),
    NodeKind::new("no configuration; CNI by interface", archive::no_configuration).wired(archive::by_interface),
    NodeKind::new("no configuration; no detection of pods", archive::no_configuration).wired(archive::no_detection),
    NodeKind::new("no configuration; masqueradeAll", archive::no_configuration)
        .wired(|recipe| recipe.proxy.masquerade_all = true),
    NodeKind::new("no configuration; node ports at one address", archive::no_configuration).wired(archive::first_node),
    NodeKind::new("no configuration; dual stack", archive::no_configuration)
        .wired(|recipe| recipe.families = Families::Dual),
    NodeKind::new("no configuration; IPv6", archive::no_configuration).wired(|recipe| recipe.families = Families::V6),
    NodeKind::new("no Node objects; dual stack", archive::no_nodes).wired(|recipe| recipe.families = Families::Dual),
    NodeKind::new("no Node objects", archive::no_nodes),
    NodeKind::new("no pod range", archive::no_pod_range),
    NodeKind::new("only own endpoints, no pod range", archive::no_pod_range).of(archive::own_endpoints),
    NodeKind::new("cluster-pool IPAM, only own endpoints", network::cluster_pool)
        .wired(|recipe| recipe.point_to_point = true)
        .of(archive::own_endpoints),
    NodeKind::new("veth uplink", network::veth_uplink),
    NodeKind::new("EKS", network::eks).wired(|recipe| recipe.point_to_point = true).of(network::second_interface),
    NodeKind::new("NodeLocal DNSCache", host::node_local_dns),
    NodeKind::new("probabilities of five digits", archive::five_digits).modes(&[Mode::Iptables]),
];

fn base() -> Recipe {
    let node = |zone| NodeRecipe { zone: Some(zone), second_address: false, declared: DeclaredAddresses::Firsts };
    let pod = |node| PodRecipe { node, host_network: false };
    let on_host = |node| PodRecipe { node, host_network: true };
    Recipe {
        nodes: vec![node(0), node(1), node(2)],
        pods: vec![pod(0), pod(1), pod(0), pod(2), on_host(0), on_host(1)],
        services: services(),
        service_cidrs: true,
        proxy: svclab_oracle::generate::ProxyRecipe { localhost_node_ports: true, ..Default::default() },
        ..Recipe::default()
    }
}

fn services() -> Vec<ServiceRecipe> {
    let port = |protocol| PortRecipe { protocol, node_port: true, same_number: false };
    let service = |kind, pods: &[u8]| ServiceRecipe {
        kind,
        ports: vec![port(0)],
        endpoints: pods.iter().map(|pod| EndpointRecipe { pod: *pod, ..EndpointRecipe::default() }).collect(),
        ..ServiceRecipe::default()
    };
    let balanced = |number, pods: &[u8]| ServiceRecipe {
        ingress: vec![(number, IngressMode::Vip)],
        ..service(ServiceKind::LoadBalancer, pods)
    };
    let local = |service| ServiceRecipe { external_local: true, ..service };
    vec![
        ServiceRecipe { ports: vec![port(1), port(0)], ..service(ServiceKind::ClusterIp, &[0, 1, 3]) },
        service(ServiceKind::NodePort, &[0, 2, 3]),
        local(balanced(0, &[0, 1])),
        ServiceRecipe { source_ranges: vec![SourceRangeRecipe::FirstClient], ..balanced(1, &[1, 2]) },
        service(ServiceKind::ClusterIp, &[4, 5]),
        service(ServiceKind::NodePort, &[]),
        ServiceRecipe { affinity: Some(600), ..service(ServiceKind::ClusterIp, &[0, 1, 2]) },
        ServiceRecipe { external_ips: vec![0], ..service(ServiceKind::ClusterIp, &[0, 1]) },
        local(service(ServiceKind::NodePort, &[1, 3])),
        ServiceRecipe { internal_local: true, ..service(ServiceKind::ClusterIp, &[2, 3]) },
    ]
}
