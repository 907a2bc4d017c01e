use std::collections::BTreeMap;

use crate::mode::iptables_family::rules::names;
use crate::model::{ObjectKey, Protocol, ServicePortName};
use crate::plan::BackendSet;
use crate::relay::Listener;
use crate::ruleset::SavedTable;

pub fn listening_ports(filter: &SavedTable) -> BTreeMap<Listener, u16> {
    let rules = filter.chains.get(names::NODEPORT_NON_LOCAL).into_iter().flatten();
    rules.filter(|rule| rule.ends_with("-j ACCEPT")).filter_map(|rule| listener(rule)).collect()
}

fn listener(rule: &str) -> Option<(Listener, u16)> {
    let after = |option: &str| Some(rule.split_once(option)?.1);
    let word = |option: &str| after(option)?.split(' ').next();
    let protocol = Protocol::from_api(Some(&word("-p ")?.to_uppercase()))?;
    let comment = after("--comment \"")?.split('"').next()?;
    let (comment, set) = match comment.strip_suffix(super::objects::ON_THIS_NODE) {
        Some(name) => (name, BackendSet::Local),
        None => (comment, BackendSet::Cluster),
    };
    let (namespace, rest) = comment.split_once('/')?;
    let (service, port) = rest.split_once(':')?;
    let service = ObjectKey { namespace: namespace.into(), name: service.into() };
    let name = ServicePortName { service, port: port.into(), protocol };
    Some((Listener { name, set }, word("--dport ")?.parse().ok()?))
}
