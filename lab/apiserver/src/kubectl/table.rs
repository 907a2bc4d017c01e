use jiff::Timestamp;
use serde_json::{Value, json};

use crate::objects::{ObjectKind, Record};

/// Returns the columns, and the ones of `-o wide` only.
fn definitions(kind: ObjectKind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        ObjectKind::Service => (&["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"], &["Selector"]),
        ObjectKind::EndpointSlice => (&["Name", "AddressType", "Ports", "Endpoints", "Age"], &[]),
        ObjectKind::Node => (&["Name", "Status", "Roles", "Age", "Version"], &["Internal-IP", "External-IP"]),
        ObjectKind::Pod => (&["Name", "Ready", "Status", "Restarts", "Age"], &["IP", "Node"]),
        ObjectKind::Deployment => (&["Name", "Ready", "Up-to-date", "Available", "Age"], &[]),
        ObjectKind::ReplicaSet => (&["Name", "Desired", "Current", "Ready", "Age"], &[]),
        ObjectKind::Namespace => (&["Name", "Status", "Age"], &[]),
        ObjectKind::Event => (&["Last Seen", "Type", "Reason", "Object", "Message"], &["Name"]),
        ObjectKind::ServiceCidr => (&["Name", "CIDRs", "Age"], &[]),
        ObjectKind::Lease => (&["Name", "Holder", "Age"], &[]),
        ObjectKind::Endpoints => (&["Name", "Endpoints", "Age"], &[]),
        ObjectKind::NetworkPolicy => (&["Name", "Age"], &[]),
    }
}

pub(crate) fn columns(kind: ObjectKind) -> Vec<Value> {
    let column = |name: &str, priority: i32| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": name, "priority": priority})
    };
    let (always, wide) = definitions(kind);
    always.iter().map(|name| column(name, 0)).chain(wide.iter().map(|name| column(name, 1))).collect()
}

/// Returns the cells in the order of [`columns`].
pub(crate) fn cells(record: &Record, object: &Value, now: Timestamp) -> Vec<Value> {
    let age = age(record.created.0, now);
    let name = record.key.name.clone();
    let cells = match record.kind {
        ObjectKind::Service => service(object, name, age),
        ObjectKind::EndpointSlice => slice(object, name, age),
        ObjectKind::Node => node(object, name, age),
        ObjectKind::Pod => pod(object, name, age),
        ObjectKind::Deployment => {
            let (ready, wanted) = (number(object, "status", "readyReplicas"), number(object, "spec", "replicas"));
            let of = |field: &str| number(object, "status", field).to_string();
            vec![name, format!("{ready}/{wanted}"), of("updatedReplicas"), of("availableReplicas"), age]
        }
        ObjectKind::ReplicaSet => {
            let of = |part: &str, field: &str| number(object, part, field).to_string();
            vec![name, of("spec", "replicas"), of("status", "replicas"), of("status", "readyReplicas"), age]
        }
        ObjectKind::Namespace => vec![name, text(&object["status"]["phase"]), age],
        ObjectKind::Event => event(object, name, age),
        ObjectKind::ServiceCidr => {
            let cidrs = object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            vec![name, cidrs.collect::<Vec<_>>().join(","), age]
        }
        ObjectKind::Endpoints => vec![name, endpoints(object), age],
        ObjectKind::NetworkPolicy => vec![name, age],
        ObjectKind::Lease => vec![name, text(&object["spec"]["holderIdentity"]), age],
    };
    cells.into_iter().map(Value::String).collect()
}

/// Returns the ready addresses, each with each of its ports.
fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(&object["subsets"]) {
        for address in list(&subset["addresses"]) {
            let ports = list(&subset["ports"]).iter().map(|port| &port["port"]);
            all.extend(ports.map(|port| format!("{}:{port}", text(&address["ip"]))));
        }
    }
    or(all.join(","), "<none>")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(object: &Value, part: &str, field: &str) -> i64 {
    object[part][field].as_i64().unwrap_or(0)
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the age in one unit, or two where one is too coarse, like `kubectl`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () => two(days / 365, "y", days % 365, "d"),
    }
}

fn service(object: &Value, name: String, age: String) -> Vec<String> {
    let spec = &object["spec"];
    let kind = text(&spec["type"]);
    let external = external_ips(object, &kind);
    let ports = list(&spec["ports"]).iter().map(|port| {
        let node_port = port["nodePort"].as_i64().map(|number| format!(":{number}")).unwrap_or_default();
        format!("{}{node_port}/{}", port["port"], text(&port["protocol"]))
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    let selector = spec["selector"].as_object().map(|labels| {
        labels.iter().map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(",")
    });
    vec![
        name,
        kind,
        or(text(&spec["clusterIP"]), "<none>"),
        external,
        or(ports, "<none>"),
        age,
        or(selector.unwrap_or_default(), "<none>"),
    ]
}

fn external_ips(object: &Value, kind: &str) -> String {
    if kind == "ExternalName" {
        return text(&object["spec"]["externalName"]);
    }
    let published = list(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter(|_| kind == "LoadBalancer")
        .map(|entry| or(text(&entry["ip"]), entry["hostname"].as_str().unwrap_or_default()));
    let all: Vec<String> = published.chain(list(&object["spec"]["externalIPs"]).iter().map(text)).collect();
    or(all.join(","), if kind == "LoadBalancer" { "<pending>" } else { "<none>" })
}

fn first_three(all: &[String]) -> String {
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    match all.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn slice(object: &Value, name: String, age: String) -> Vec<String> {
    let ports: Vec<String> = list(&object["ports"])
        .iter()
        .map(|port| port["port"].as_i64().map_or_else(|| "*".to_owned(), |number| number.to_string()))
        .collect();
    let endpoints: Vec<String> =
        list(&object["endpoints"]).iter().flat_map(|endpoint| list(&endpoint["addresses"])).map(text).collect();
    vec![
        name,
        text(&object["addressType"]),
        or(first_three(&ports), "<unset>"),
        or(first_three(&endpoints), "<unset>"),
        age,
    ]
}

fn node(object: &Value, name: String, age: String) -> Vec<String> {
    let ready = list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| text(&condition["status"])).as_deref() {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object["metadata"]["labels"].as_object();
    let roles = labels.map(|labels| {
        labels.keys().filter_map(|label| label.strip_prefix("node-role.kubernetes.io/")).collect::<Vec<_>>()
    });
    let address = |type_: &str| {
        let found = list(&object["status"]["addresses"]).iter().find(|address| address["type"] == type_);
        or(found.map(|address| text(&address["address"])).unwrap_or_default(), "<none>")
    };
    let roles = or(roles.unwrap_or_default().join(","), "<none>");
    let version = text(&object["status"]["nodeInfo"]["kubeletVersion"]);
    vec![name, status, roles, age, version, address("InternalIP"), address("ExternalIP")]
}

fn pod(object: &Value, name: String, age: String) -> Vec<String> {
    let containers = list(&object["spec"]["containers"]).len();
    let conditions = list(&object["status"]["conditions"]);
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let terminating = object["metadata"]["deletionTimestamp"].is_string();
    let (phase, reason) = (text(&object["status"]["phase"]), text(&object["status"]["reason"]));
    let status = if terminating { "Terminating".to_owned() } else { or(reason, &phase) };
    vec![
        name,
        format!("{}/{containers}", if ready { containers } else { 0 }),
        status,
        "0".to_owned(),
        age,
        or(text(&object["status"]["podIP"]), "<none>"),
        or(text(&object["spec"]["nodeName"]), "<none>"),
    ]
}

fn event(object: &Value, name: String, age: String) -> Vec<String> {
    let about = &object["involvedObject"];
    let about = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    vec![age, text(&object["type"]), text(&object["reason"]), about, text(&object["message"]), name]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_or_two_units() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (1_800, "30m"),
            (10_800, "3h"),
            (11_700, "3h15m"),
            (86_400, "24h"),
            (180_000, "2d2h"),
            (86_400 * 30, "30d"),
            (86_400 * 800, "2y70d"),
        ] {
            assert_eq!(age(at(1_000), at(1_000 + seconds)), expected);
        }
    }

    #[test]
    fn a_row_has_a_cell_for_every_column() {
        let mut store = crate::testing::filled_store();
        let deployment = json!({"metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "d"}},
            "template": {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "c"}]}},
        }});
        for (kind, value) in [
            (ObjectKind::Deployment, deployment),
            (
                ObjectKind::Event,
                json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "node-a"}}),
            ),
            (ObjectKind::Lease, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})),
        ] {
            store.apply(crate::objects::Object::from_value(kind, &value).unwrap().0).unwrap();
        }
        store.serve_endpoints();
        for kind in ObjectKind::ALL.into_iter().filter(|kind| *kind != ObjectKind::NetworkPolicy) {
            assert!(store.records(kind).next().is_some(), "{kind}");
            for record in store.records(kind) {
                let cells = cells(record, &record.value(), Timestamp::now());
                assert_eq!(cells.len(), columns(kind).len(), "{kind}");
            }
        }
    }
}
