//! `svclab check`: machines, addresses, and each step's requests and expectations.

use std::fmt::Write;

use svclab_apiserver::objects::Store;

use super::file::{Action, ExpectFile, HealthCheckFile};
use super::{LoadError, Scenario, Step, dry_run, resolve};
use crate::expect::ProbePromise;
use crate::mode::Mode;

pub fn explain(scenario: &Scenario) -> Result<String, LoadError> {
    let mut store = scenario.initial_objects()?;
    let modes: Vec<String> = scenario.modes.iter().map(Mode::to_string).collect();
    let mut text = format!("{} ({})\n  {}\n", scenario.name, modes.join(", "), scenario.about);
    machines(&mut text, &store);
    services(&mut text, &store);
    let configuration =
        scenario.proxy.configuration(scenario.modes.first().copied().unwrap_or_default(), Default::default());
    let _ = writeln!(text, "  proxy   {configuration} {}", scenario.proxy.flags().join(" "));
    for (index, step) in scenario.steps.iter().enumerate() {
        let _ = writeln!(text, "  {:>2}. {} (line {})", index + 1, step.name, step.line);
        let _ = dry_run::change(&mut store, step);
        for line in details(&store, step) {
            let _ = writeln!(text, "      {line}");
        }
    }
    Ok(text)
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn machines(text: &mut String, store: &Store) {
    let spec = store.cluster_spec();
    for node in &spec.nodes {
        let zone = node.zone.as_ref().map(|zone| format!(", zone {zone}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  node    {} {}, pods in {}{zone}",
            node.name,
            join(&node.addresses),
            join(&node.pod_cidrs)
        );
    }
    for pod in &spec.pods {
        let ports: Vec<String> = pod.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect();
        let host = if pod.host_network { ", host network" } else { "" };
        let _ = writeln!(
            text,
            "  pod     {}/{} on {} {}{host} {}",
            pod.namespace,
            pod.name,
            pod.node,
            join(&pod.addresses),
            ports.join(" ")
        );
    }
    for client in &spec.clients {
        let _ = writeln!(text, "  client  {} {}", client.name, join(&client.addresses));
    }
}

fn services(text: &mut String, store: &Store) {
    for (key, service) in store.services() {
        let spec = service.spec.clone().unwrap_or_default();
        let ports: Vec<String> = spec
            .ports
            .iter()
            .flatten()
            .map(|port| {
                let node_port = port.node_port.map(|number| format!(" (node port {number})")).unwrap_or_default();
                format!("{}/{}{node_port}", port.port, port.protocol.as_deref().unwrap_or("TCP"))
            })
            .collect();
        let external: Vec<_> = store.vips_of(key).iter().map(|vip| format!("{} ({})", vip.address, vip.mode)).collect();
        let kind = spec.type_.unwrap_or_default();
        let ips = spec.cluster_ips.unwrap_or_default();
        let _ = writeln!(text, "  service {key} {kind} {} {} {}", ips.join(" "), ports.join(", "), external.join(" "));
    }
}

fn details(store: &Store, step: &Step) -> Vec<String> {
    let probe = |plan: Result<resolve::ProbePlan, _>| {
        let Ok(plan) = plan else { return Vec::new() };
        let via = plan.route.map(|(_, _, node)| format!(" by way of {node}")).unwrap_or_default();
        let (pair, probe) = (if plan.pair { "two datagrams at once, " } else { "" }, plan.probe);
        let sent = format!("{} × {pair}{} from {} to {}{via}", plan.count, probe.protocol, probe.from, probe.to);
        vec![sent, promise(&plan.wanted, &step.expect)]
    };
    let nodes = step.nodes.join(", ");
    match &step.action {
        Action::Probe(file) => probe(resolve::probe(store, file, &step.expect)),
        Action::Connect(file) => probe(resolve::connect(store, file, &step.expect)),
        Action::Scan(file) => {
            let Ok(plan) = resolve::scan(store, file, &step.expect) else { return Vec::new() };
            let open: Vec<String> = plan.open.iter().map(u16::to_string).collect();
            let open = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            vec![format!("{} TCP ports of {} from {}; open: {open}", plan.ports.len(), plan.address, plan.from)]
        }
        Action::HealthCheck(HealthCheckFile { path: Some(path), from, .. }) => {
            let from = from.as_ref().map(|from| format!(", asked by {}", from.value.0)).unwrap_or_default();
            vec![format!("{} of the proxy on {}{from}", path.text(), step.node())]
        }
        Action::Metric(file) => vec![format!("{} of the proxy on {}", file.name, step.node())],
        Action::Exec(exec) => vec![format!("on {}: {}", exec.at.value.0, exec.command.join(" "))],
        Action::KillProxy(file) if file.when.is_some() => {
            vec![format!("in the next step's restore, on {nodes}")]
        }
        Action::Impair(file) => vec![format!("on the way to {nodes}: {}", file.impairment())],
        Action::Advance(time) => vec![format!("{} s of virtual time pass", time.0.as_secs_f64())],
        Action::Idle(time) => vec![format!("{} s in which nothing happens", time.0.as_secs_f64())],
        action => match action.fault() {
            None if step.expect.took.is_some() => vec![format!("{}{}", step.key.key, bounds(&step.expect, ""))],
            Some(fault) => vec![format!("on {nodes}: {fault}")],
            None if nodes.is_empty() => vec![step.key.key.to_owned()],
            None => vec![format!("{} on {nodes}", step.key.key)],
        },
    }
}

fn promise(wanted: &ProbePromise, expect: &ExpectFile) -> String {
    let mut text = match wanted {
        ProbePromise::Refused => "every one is refused".to_owned(),
        ProbePromise::Dropped => "every one is dropped".to_owned(),
        ProbePromise::Unanswered => "none is answered".to_owned(),
        ProbePromise::Answered { by, source, sticky, turns, all, dscp } => {
            let share =
                |share: &Option<f64>| share.map(|share| format!(" ({:.1}%)", share * 100.0)).unwrap_or_default();
            let by: Vec<String> = by.iter().map(|(name, part)| format!("{name}{}", share(part))).collect();
            let mut text = format!("every one is answered by {}", by.join(" or "));
            if let Some(source) = source {
                let _ = write!(text, ", which sees {}", source.words);
            }
            if let Some(dscp) = dscp {
                let _ = write!(text, ", which sees DSCP {dscp}");
            }
            if *sticky {
                text.push_str(", always the same");
            }
            if *all {
                text.push_str(", some by each");
            }
            if turns.is_some() {
                text.push_str(", in turn");
            }
            text
        }
    };
    if let Some(same) = &expect.same_as {
        let _ = write!(text, ", the same as in {:?}", same.value);
    }
    if let Some(other) = &expect.differs_from {
        let _ = write!(text, ", not the same as in {:?}", other.value);
    }
    text.push_str(&bounds(expect, " each"));
    if !expect.counters.is_empty() {
        let _ = write!(text, "; {} rule counters agree", expect.counters.len());
    }
    text
}

fn bounds(expect: &ExpectFile, each: &str) -> String {
    let bounds = expect.took.iter().flat_map(|bounds| &bounds.0);
    bounds.map(|bound| format!(", in {}{each}", bound.value)).collect()
}
