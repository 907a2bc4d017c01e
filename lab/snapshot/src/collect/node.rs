use k8s_openapi::api::core::v1::Node;
use nix::sys::utsname::uname;

use super::proxy::process::Process;
use crate::Snapshot;

/// The label that the kubelet sets to its host name (kubernetes.io, "Well-Known Labels").
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) fn host_and_kernel() -> (String, String) {
    let Ok(names) = uname() else { return Default::default() };
    (names.nodename().to_string_lossy().into_owned(), names.release().to_string_lossy().into_owned())
}

pub(super) fn name(said: Option<&str>, process: Option<&Process>, snapshot: &Snapshot) -> Option<String> {
    let environment = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let flag = || process.and_then(|process| process.flag("hostname-override")).map(str::to_owned);
    let said = said.map(str::to_owned).or_else(environment).or_else(flag);
    said.or_else(|| found(snapshot))
}

/// Finds the Node by name or label, else by address.
fn found(snapshot: &Snapshot) -> Option<String> {
    let nodes = || snapshot.objects.iter().flat_map(|objects| &objects.nodes);
    // The kubelet lower-cases the host name.
    let host = snapshot.host.to_lowercase();
    let called = |node: &&Node| {
        let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
        node.metadata.name.as_deref() == Some(&host) || label == Some(&host)
    };
    let own: Vec<String> = snapshot.network.iter().flat_map(|network| &network.addresses).map(own_address).collect();
    let addressed = |node: &&Node| {
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses.into_iter().any(|address| own.contains(&address.address))
    };
    nodes().find(called).or_else(|| nodes().find(addressed)).and_then(|node| node.metadata.name.clone())
}

fn own_address(address: &crate::network::Address) -> String {
    address.address.addr().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Objects;
    use crate::network::{Address, Network};

    fn node(name: &str, label: &str, address: &str) -> Node {
        let value = json!({
            "metadata": { "name": name, "labels": { HOSTNAME: label } },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
        });
        serde_json::from_value(value).unwrap()
    }

    fn snapshot(host: &str, address: &str) -> Snapshot {
        let address = Address {
            interface: "eth0".to_owned(),
            address: address.parse().unwrap(),
            scope: "global".to_owned(),
            ..Address::default()
        };
        let nodes = vec![node("a", "host-a", "10.0.0.1"), node("b", "host-b", "10.0.0.2")];
        Snapshot {
            host: host.to_owned(),
            network: Some(Network { addresses: vec![address], ..Network::default() }),
            objects: Some(Objects { nodes, ..Objects::default() }),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_node_is_known_by_name_label_or_address() {
        assert_eq!(found(&snapshot("B", "10.0.0.1/24")).as_deref(), Some("b"));
        assert_eq!(found(&snapshot("host-b", "10.0.0.1/24")).as_deref(), Some("b"));
        assert_eq!(found(&snapshot("other", "10.0.0.2/24")).as_deref(), Some("b"));
        assert_eq!(found(&snapshot("other", "10.0.0.3/24")), None);
        assert_eq!(name(Some("said"), None, &snapshot("b", "10.0.0.1/24")).as_deref(), Some("said"));
    }
}
