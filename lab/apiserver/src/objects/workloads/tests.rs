use serde_json::{Value, json};

use crate::objects::{Object, ObjectKey, ObjectKind, Store};
use crate::testing;

fn apply(store: &mut Store, kind: ObjectKind, value: &Value) -> Result<String, String> {
    let (object, unknown) = Object::from_value(kind, value).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    store.replace(object).map_err(|error| error.to_string())
}

fn deployment(replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": {
                "metadata": {"labels": {"app": "shop"}},
                "spec": {"containers": [{"name": "shop", "image": image, "ports": [{"containerPort": 8080}]}]},
            },
        },
    })
}

fn service() -> Value {
    json!({"metadata": {"name": "shop"}, "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80, "targetPort": 8080}]}})
}

fn pods(store: &Store) -> Vec<ObjectKey> {
    store.records(ObjectKind::Pod).map(|record| record.key.clone()).collect()
}

fn status(store: &Store) -> Value {
    store.record(ObjectKind::Deployment, &ObjectKey::new(None, "shop")).unwrap().value()["status"].clone()
}

fn endpoints(store: &Store) -> usize {
    let count = |slice: Value| slice["endpoints"].as_array().map_or(0, Vec::len);
    store.records(ObjectKind::EndpointSlice).map(|record| count(record.value())).sum()
}

fn start(store: &mut Store) {
    for pod in store.pod_states() {
        store.set_running(&pod.key, &pod.uid);
    }
}

#[test]
fn a_deployment_scales_and_replaces_its_pods() {
    let mut store = testing::store(false, 0);
    apply(&mut store, ObjectKind::Service, &service()).unwrap();
    apply(&mut store, ObjectKind::Deployment, &deployment(3, "a")).unwrap();
    let three = pods(&store);
    assert_eq!((three.len(), endpoints(&store)), (3, 3));
    assert!(three.iter().all(|pod| pod.name.starts_with("shop-")), "{three:?}");
    assert_eq!(status(&store)["availableReplicas"], 3);
    assert_eq!(store.records(ObjectKind::ReplicaSet).count(), 1);

    apply(&mut store, ObjectKind::Deployment, &deployment(5, "a")).unwrap();
    assert_eq!((pods(&store).len(), endpoints(&store)), (5, 5));
    assert!(three.iter().all(|pod| pods(&store).contains(pod)), "those that were there stay");
    apply(&mut store, ObjectKind::Deployment, &deployment(1, "a")).unwrap();
    assert_eq!((pods(&store).len(), endpoints(&store)), (1, 1));

    let last = pods(&store).remove(0);
    store.remove(ObjectKind::Pod, &last).unwrap();
    assert_eq!(pods(&store).len(), 1, "one that is deleted is made up for");
    assert_ne!(pods(&store), [last]);

    store.remove(ObjectKind::Deployment, &ObjectKey::new(None, "shop")).unwrap();
    assert_eq!((pods(&store).len(), store.records(ObjectKind::ReplicaSet).count(), endpoints(&store)), (0, 0, 0));
}

#[test]
fn a_rollout_keeps_enough_ready_pods() {
    let mut store = testing::store(false, 0);
    store.hold_pods();
    apply(&mut store, ObjectKind::Service, &service()).unwrap();
    apply(&mut store, ObjectKind::Deployment, &deployment(4, "a")).unwrap();
    assert_eq!((pods(&store).len(), endpoints(&store)), (4, 0), "they wait");
    assert_eq!(status(&store)["unavailableReplicas"], 4);
    start(&mut store);
    assert_eq!((status(&store)["availableReplicas"].clone(), endpoints(&store)), (json!(4), 4));
    let old = pods(&store);

    apply(&mut store, ObjectKind::Deployment, &deployment(4, "b")).unwrap();
    let is_done = |store: &Store| status(store)["conditions"][1]["reason"] == "NewReplicaSetAvailable";
    assert!(!is_done(&store));
    let mut rounds = 0;
    while !is_done(&store) {
        assert!((3..=4).contains(&endpoints(&store)), "{}", status(&store));
        assert!(pods(&store).len() <= 5, "one more than asked for: {:?}", pods(&store));
        let states = store.pod_states();
        let waits =
            |key: &ObjectKey| store.record(ObjectKind::Pod, key).unwrap().value()["status"]["phase"] == "Pending";
        let next = states.iter().find(|pod| waits(&pod.key)).unwrap_or_else(|| panic!("{}", status(&store))).clone();
        store.set_running(&next.key, &next.uid);
        rounds += 1;
        assert!(rounds < 20);
    }
    assert!(pods(&store).iter().all(|pod| !old.contains(pod)));
    assert_eq!((pods(&store).len(), endpoints(&store), store.records(ObjectKind::ReplicaSet).count()), (4, 4, 2));
    assert_eq!(status(&store)["updatedReplicas"], 4);

    apply(&mut store, ObjectKind::Deployment, &deployment(4, "a")).unwrap();
    while !is_done(&store) {
        start(&mut store);
    }
    assert_eq!(store.records(ObjectKind::ReplicaSet).count(), 2);
    let annotations = store.record(ObjectKind::Deployment, &ObjectKey::new(None, "shop")).unwrap().value();
    assert_eq!(annotations["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
}

#[test]
fn an_invalid_deployment_is_rejected_and_a_namespace_removes_its_objects() {
    let mut store = testing::store(false, 0);
    let mut wrong = deployment(1, "a");
    wrong["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    assert!(apply(&mut store, ObjectKind::Deployment, &wrong).unwrap_err().contains("`selector` does not match"));
    wrong["spec"]["selector"] = json!({});
    assert!(apply(&mut store, ObjectKind::Deployment, &wrong).unwrap_err().contains("spec.selector"));
    wrong["spec"]["selector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    assert!(apply(&mut store, ObjectKind::Deployment, &wrong).unwrap_err().contains("matchLabels alone"));

    let mut inside = deployment(2, "a");
    inside["metadata"]["namespace"] = json!("mall");
    apply(&mut store, ObjectKind::Deployment, &inside).unwrap();
    assert_eq!(pods(&store).len(), 2);
    store.remove(ObjectKind::Namespace, &ObjectKey::unscoped("mall")).unwrap();
    assert_eq!((pods(&store).len(), store.records(ObjectKind::Deployment).count()), (0, 0));

    let mut hosts = deployment(2, "a");
    hosts["spec"]["template"]["spec"]["containers"][0]["ports"][0]["hostPort"] = json!(80);
    apply(&mut store, ObjectKind::Deployment, &hosts).unwrap();
    let set = store.records(ObjectKind::ReplicaSet).next().unwrap().value();
    assert_eq!(set["status"]["conditions"][0]["type"], "ReplicaFailure", "{set}");
}
