//! The banner of `up`: machines, services, and commands to try.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use svclab_apiserver::objects::{ObjectKey, ObjectKind, Store};
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_netns::labs::LabDescription;
use svclab_spec::{ClusterSpec, Protocol};

use crate::cli::table::lines;
use crate::scenario::run::KernelLab;
use crate::schedule::NAME;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BannerReader {
    /// Commands are typed in another terminal.
    AnotherTerminal,
    /// Commands are typed in the lab's microVM.
    ThisShell,
}

pub(super) fn text(lab: &KernelLab, about: &LabDescription, reader: BannerReader) -> String {
    let spec = lab.cluster().spec();
    let (services, request) = lab.read(|store| (services(store), request(store, &spec)));
    let (end, tries_from) = match reader {
        BannerReader::AnotherTerminal => ("ctrl-c ends it", "try, from another terminal"),
        BannerReader::ThisShell => ("`exit` ends it, and so does ctrl-]", "try"),
    };
    let mut text = format!("{} is up in {} mode; {end}\n", about.name, about.mode);
    let mut section = |title: &str, rows: String| {
        if !rows.is_empty() {
            text.push_str(&format!("\n{title}\n{rows}"));
        }
    };
    section("nodes", lines(&nodes(&spec), "  "));
    section("pods", lines(&pods(&spec), "  "));
    section("outside", lines(&outside(&spec), "  "));
    section("services", lines(&services, "  "));
    let program = program();
    let mut tries = Vec::new();
    let place = |place: &ClusterHost| match place {
        ClusterHost::Pod { namespace, name } if namespace == "default" => format!("pod/{name}"),
        other => other.to_string(),
    };
    let mut command =
        |verb: &str, rest: String| tries.push(format!("  {program} {verb} --name {} {rest}\n", about.name));
    if let Some(SampleRequest { from, to, url }) = request {
        let from = place(&from);
        // Prefers curl; a microVM has busybox's wget only.
        let get = if is_here("curl") || !is_here("wget") { "curl -s" } else { "wget -qO-" };
        command("exec", format!("{from} -- {get} {url}"));
        command("probe", format!("--from {from} --to {to}"));
    }
    if let Some(node) = spec.nodes.first().map(|node| &node.name) {
        if lab.kubeconfig(node).is_some() && (reader == BannerReader::AnotherTerminal || is_here("kubectl")) {
            command("exec", format!("node/{node} -- kubectl get pods,services -o wide"));
        }
        let shell = if is_here("bash") { "bash" } else { "sh" };
        command("exec", format!("node/{node} -- {shell}"));
        command("logs", node.clone());
        command("pcap", format!("node/{node}"));
    }
    section(tries_from, tries.concat());
    text
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn nodes(spec: &ClusterSpec) -> Vec<[String; 3]> {
    let row = |node: &svclab_spec::NodeSpec| {
        let addresses = joined(node.addresses.iter().chain(&node.extra_addresses));
        [format!("node/{}", node.name), addresses, format!("pods in {}", joined(&node.pod_cidrs))]
    };
    spec.nodes.iter().map(row).collect()
}

fn pods(spec: &ClusterSpec) -> Vec<[String; 4]> {
    let row = |pod: &svclab_spec::PodSpec| {
        let ports = pod.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol));
        let place = ClusterHost::Pod { namespace: pod.namespace.clone(), name: pod.name.clone() };
        [place.to_string(), joined(&pod.addresses), joined(ports), format!("on {}", pod.node)]
    };
    spec.pods.iter().map(row).collect()
}

fn outside(spec: &ClusterSpec) -> Vec<[String; 2]> {
    let clients = spec.clients.iter().map(|client| [format!("client/{}", client.name), joined(&client.addresses)]);
    let balancer = spec.load_balancer.iter();
    clients.chain(balancer.map(|one| ["load-balancer".to_owned(), joined(&one.addresses)])).collect()
}

fn services(store: &Store) -> Vec<[String; 3]> {
    store
        .services()
        .map(|(key, service)| [format!("service/{key}"), kind(service), frontends(store, key, service)])
        .collect()
}

fn kind(service: &Service) -> String {
    service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_default()
}

fn frontends(store: &Store, key: &ObjectKey, service: &Service) -> String {
    let Some(spec) = &service.spec else { return String::new() };
    let ports: Vec<&ServicePort> = spec.ports.iter().flatten().collect();
    let port = |port: &&ServicePort| format!("{}/{}", port.port, port.protocol.as_deref().unwrap_or("TCP"));
    let node_port =
        |port: &&ServicePort| Some(format!("{}/{}", port.node_port?, port.protocol.as_deref().unwrap_or("TCP")));
    let mut all =
        vec![format!("{} port {}", joined(spec.cluster_ips.iter().flatten()), joined(ports.iter().map(port)))];
    let mut add = |what: &str, values: String| {
        if !values.is_empty() {
            all.push(format!("{what} {values}"));
        }
    };
    add("node port", joined(ports.iter().filter_map(node_port)));
    add("external IP", joined(spec.external_ips.iter().flatten()));
    add("load balancer", joined(store.vips_of(key).iter().map(|vip| vip.address)));
    all.join("; ")
}

struct SampleRequest {
    from: ClusterHost,
    to: String,
    url: String,
}

fn request(store: &Store, spec: &ClusterSpec) -> Option<SampleRequest> {
    let found = store.services().find_map(|(key, service)| {
        let spec = service.spec.as_ref()?;
        let address: std::net::IpAddr = spec.cluster_ips.as_ref()?.first()?.parse().ok()?;
        let is_tcp = |port: &&ServicePort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
        let port = spec.ports.iter().flatten().find(is_tcp)?;
        has_ready_endpoint(store, key)
            .then(|| (key.clone(), std::net::SocketAddr::new(address, u16::try_from(port.port).unwrap_or(0))))
    });
    let (key, address) = found?;
    let serves = |pod: &&svclab_spec::PodSpec| pod.ports.iter().any(|port| port.protocol == Protocol::Tcp);
    let pod = spec.pods.iter().find(serves).or(spec.pods.first());
    let from = match pod {
        Some(pod) => ClusterHost::Pod { namespace: pod.namespace.clone(), name: pod.name.clone() },
        None => ClusterHost::Node(spec.nodes.first()?.name.clone()),
    };
    let to = if key.namespace == "default" { format!("service/{}", key.name) } else { format!("service/{key}") };
    let host =
        if address.port() == 80 { address.to_string().trim_end_matches(":80").to_owned() } else { address.to_string() };
    Some(SampleRequest { from, to: format!("{to}:{}", address.port()), url: format!("http://{host}/") })
}

fn has_ready_endpoint(store: &Store, service: &ObjectKey) -> bool {
    let slices = store.records(ObjectKind::EndpointSlice).filter(|slice| {
        slice.key.namespace == service.namespace && slice.labels.get(SERVICE_NAME) == Some(&service.name)
    });
    slices.into_iter().any(|slice| {
        let value = slice.value();
        let endpoints = value["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
        endpoints.iter().any(|endpoint| endpoint["conditions"]["ready"] != false)
    })
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns svclab's name if `PATH` finds this program, else its path.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return NAME.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|program| program.is_file());
    let is_own = first.and_then(|first| std::fs::canonicalize(first).ok()) == std::fs::canonicalize(&own).ok();
    let shown = own.display().to_string();
    if is_own { NAME.to_owned() } else { shlex::try_quote(&shown).map_or(shown.clone(), std::borrow::Cow::into_owned) }
}
