use crate::support::command::{ended, err, svclab};
use serde_json::Value;

/// Returns the mistakes of `value` by `schema`. Panics at a keyword that this validator does not know.
fn wrong(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let Value::Object(rules) = schema else { return (schema == false).then(|| format!("{at}: nothing may be here")) };
    let is_a = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        kind => panic!("no such type: {kind}"),
    };
    let list = |rule: &Value| rule.as_array().unwrap().clone();
    rules.iter().find_map(|(keyword, rule)| {
        let no = |why: &str| Some(format!("{at}: {keyword} {rule}: {why}"));
        match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "format" | "$defs" => None,
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix('#').unwrap();
                wrong(root, root.pointer(name).unwrap(), value, at)
            }
            "type" => {
                let kinds = if rule.is_array() { list(rule) } else { vec![rule.clone()] };
                if kinds.iter().any(|kind| is_a(kind.as_str().unwrap())) { None } else { no(&value.to_string()) }
            }
            "enum" => {
                if list(rule).contains(value) {
                    None
                } else {
                    no(&value.to_string())
                }
            }
            "const" => {
                if rule == value {
                    None
                } else {
                    no(&value.to_string())
                }
            }
            "anyOf" | "oneOf" => {
                let all: Vec<Option<String>> = list(rule).iter().map(|one| wrong(root, one, value, at)).collect();
                if all.iter().any(Option::is_none) { None } else { no(&format!("{all:?}")) }
            }
            "minimum" => value.as_f64().filter(|number| *number < rule.as_f64().unwrap()).and_then(|_| no("less")),
            "maximum" => value.as_f64().filter(|number| *number > rule.as_f64().unwrap()).and_then(|_| no("more")),
            "items" => value
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
                .find_map(|(index, item)| wrong(root, rule, item, &format!("{at}[{index}]"))),
            "required" => list(rule)
                .iter()
                .find_map(|name| if value.get(name.as_str().unwrap()).is_some() { None } else { no("missing") }),
            "properties" => value
                .as_object()
                .into_iter()
                .flatten()
                .find_map(|(name, inner)| wrong(root, rule.get(name)?, inner, &format!("{at}.{name}"))),
            "additionalProperties" => value.as_object().into_iter().flatten().find_map(|(name, inner)| {
                let known = rules.get("properties").is_some_and(|known| known.get(name).is_some());
                if known { None } else { wrong(root, rule, inner, &format!("{at}.{name}")) }
            }),
            other => panic!("{at}: the test does not know {other}"),
        }
    })
}

#[test]
fn the_schema_accepts_every_scenario_and_no_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let output = svclab(folder.path(), &["schema"]);
    ended(&output, 0);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in crate::support::runs::names() {
        let text = std::fs::read_to_string(crate::support::runs::folder().join(&name).with_extension("yaml")).unwrap();
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(wrong(&schema, &schema, &value, ""), None, "{name}");
    }
    for mistake in [
        "{name: s, about: x}",
        "{name: s, about: x, steps: [{name: a, prob: {from: pod/a, to: service/b}}]}",
        "{name: s, about: x, steps: [{name: a, probe: {from: pod/a}}]}",
        "{name: s, about: x, steps: [{name: a, killProxy: {node: all, when: sleeping}}]}",
        "{name: s, about: x, modes: [ebpf], steps: []}",
        "{name: s, about: x, cluster: {nodes: 0}, steps: []}",
    ] {
        let value: Value = serde_saphyr::from_str(mistake).unwrap();
        assert!(wrong(&schema, &schema, &value, "").is_some(), "{mistake}");
    }
}

#[test]
fn a_new_scenario_passes() {
    let folder = tempfile::tempdir().unwrap();
    ended(&svclab(folder.path(), &["new", "my-first"]), 0);
    let checked = svclab(folder.path(), &["check", "my-first.yaml"]);
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", err(&checked));
    let run = svclab(folder.path(), &["run", "my-first.yaml", "--mode", "iptables"]);
    if run.status.code() != Some(3) || std::env::var_os("CI").is_some() {
        ended(&run, 0);
    }
    ended(&svclab(folder.path(), &["run", "my-first.yaml", "--simulate"]), 0);
    let again = svclab(folder.path(), &["new", "my-first"]);
    assert!(
        again.status.code() == Some(2) && err(&again).contains("my-first.yaml is there already"),
        "{}",
        err(&again)
    );
    let odd = svclab(folder.path(), &["new", "My First"]);
    assert!(odd.status.code() == Some(2) && err(&odd).contains("lower-case letters"), "{}", err(&odd));
}

#[test]
fn all_mistakes_of_a_file_are_reported_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
name: s
about: x
manifests: |
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    selector: {app: web}
    clusterIP: 1.2.3.4
    ports:
    - port: 80
steps:
- name: one
  prob: {from: node/node-a, to: 'pod/web:80'}
  expect: {refused: true}
- name: two
  probe: {from: node/node-a, to: 'pod/web:80'}
  expct: {refused: true}
  eventually: soon
";
    std::fs::write(folder.path().join("s.yaml"), text).unwrap();
    let output = svclab(folder.path(), &["run", "s.yaml"]);
    ended(&output, 2);
    let lines: Vec<String> = err(&output).lines().map(|line| line.trim_start_matches("svclab: ").to_owned()).collect();
    let begins = [
        "s.yaml:9:5: service/default/web: spec.clusterIPs: 1.2.3.4",
        "s.yaml:14:3: unknown field `prob`: did you mean `probe`?",
        "s.yaml:18:3: unknown field `expct`: did you mean `expect`?",
        "s.yaml:19:15: \"soon\": expected a time",
    ];
    for begin in begins {
        assert!(lines.iter().any(|line| line.starts_with(begin)), "{begin}: {lines:#?}");
    }

    let typed =
        text.replace("clusterIP: 1.2.3.4", "clusterIPP: 1.2.3.4").replace("- port: 80", "- {port: 80, nodeProt: 1}");
    std::fs::write(folder.path().join("s.yaml"), typed).unwrap();
    let output = svclab(folder.path(), &["check", "s.yaml"]);
    for begin in ["s.yaml:9:5: unknown field `spec.clusterIPP`", "s.yaml:11:18: unknown field `spec.ports[0].nodeProt`"]
    {
        assert!(err(&output).contains(begin), "{begin}: {}", err(&output));
    }
    for steps in ["steps:\n", "steps: []\n", ""] {
        std::fs::write(folder.path().join("s.yaml"), format!("name: s\nabout: x\n{steps}")).unwrap();
        let output = svclab(folder.path(), &["check", "s.yaml"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("`steps` is "), "{steps:?}: {}", err(&output));
    }
}

#[test]
fn a_service_without_pods_or_ports_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
name: s
about: x
cluster: {nodes: 1}
manifests: |
  {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: web, ports: [{containerPort: 8080}]}]}}
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec:
    selector: {app: web}
    ports:
    - {name: right, port: 80, targetPort: 8080}
    - name: wrong
      port: 81
      targetPort: 8081
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: other}
  spec:
    selector: {app: wbe}
    ports: [{port: 80}]
  ---
  apiVersion: v1
  kind: Service
  metadata: {name: later}
  spec: {selector: {app: later}, ports: [{port: 80, targetPort: http}]}
steps:
- name: one comes
  apply: |
    {apiVersion: v1, kind: Pod, metadata: {name: later, labels: {app: later}}, spec: {containers: [{name: web, ports: [{name: http, containerPort: 8080}]}]}}
";
    std::fs::write(folder.path().join("s.yaml"), text).unwrap();
    let output = svclab(folder.path(), &["check", "s.yaml"]);
    ended(&output, 0);
    let told = err(&output);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines,
        [
            "s.yaml:22:5: warning: service default/other: its selector app=wbe selects no pod, whatever the steps do",
            "s.yaml:16:7: warning: service default/web: no pod that it selects has the target port 8081/TCP",
        ]
    );
    let sound = svclab(folder.path(), &["check", "hairpin"]);
    assert!(sound.stderr.is_empty(), "{}", err(&sound));
}
