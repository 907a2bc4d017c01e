//! The daemon's loop over fake kernels.

mod costs;
mod kernel;
mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kernel::{RequestCounts, wait_while};
use lab::{DaemonLab, PATIENCE, cluster, slice, wait_for};
use serde_json::json;
use svcproxy::config::{Config, NodePortAddresses};
use svcproxy::daemon::LeftoverCleanup;
use svcproxy::events::EventSubject;
use svcproxy::kernel::iptables::Table;
use svcproxy::model::{Batch, Change, Family, Flow, Protocol};
use svcproxy::testing::key;

/// The loser is reported once, and gets the address when it is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_claims_anothers_address_is_reported_once() {
    let mut lab = DaemonLab::start(Duration::from_secs(3600));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let spec = json!({ "clusterIP": "10.96.0.66", "externalIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] });
    let object = json!({ "metadata": { "name": "aaa" }, "spec": spec });
    let claims = Change::Service(key("aaa"), Some(Arc::new(serde_json::from_value(object).unwrap())));
    let leads_to = |lab: &DaemonLab| {
        let tables = lab.kernels[0].tables.lock().unwrap();
        let lines = &tables.tables[&Table::Nat]["KUBE-SERVICES"];
        lines.iter().filter(|line| line.contains("10.96.0.1/32")).cloned().collect::<Vec<_>>().join("; ")
    };
    let disputed = |lab: &DaemonLab| {
        let text = lab.metrics.text().unwrap();
        let line = text.lines().find(|line| line.starts_with(r#"svcproxy_disputed_frontends{ip_family="IPv4"}"#));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    let restore = RequestCounts { restores: 1, ..RequestCounts::default() };
    assert_eq!(lab.cost(vec![claims, slice("aaa", &[66], "TCP")]).await, restore);
    assert!(leads_to(&lab).contains("default/web cluster IP") && !leads_to(&lab).contains("default/aaa"));
    assert_eq!(disputed(&lab), Some(1));
    lab.cost(vec![slice("aaa", &[67], "TCP"), slice("web", &[11], "TCP")]).await;
    let event = lab.events.try_recv().unwrap();
    assert_eq!((event.about, event.reason), (EventSubject::Service(key("aaa")), "FrontendTaken"));
    assert!(event.note.contains("10.96.0.1:80/tcp") && event.note.contains("default/web"), "{}", event.note);
    assert!(lab.events.try_recv().is_err(), "once");
    assert_eq!(lab.cost(vec![Change::Service(key("web"), None)]).await, restore);
    assert!(leads_to(&lab).contains("default/aaa external IP"), "{}", leads_to(&lab));
    assert_eq!(disputed(&lab), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_is_repaired_and_foreign_writes_cost_one_listing() {
    let mut lab = DaemonLab::start(Duration::from_secs(3600));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let kernel = lab.kernels[0].clone();
    *kernel.asked.lock().unwrap() = RequestCounts::default();
    kernel.announced.notify_one();
    wait_for("a look at each table", || kernel.asked.lock().unwrap().looks == 3).await;
    assert_eq!(*kernel.asked.lock().unwrap(), RequestCounts { looks: 3, ..RequestCounts::default() });
    kernel.tables.lock().unwrap().flush();
    kernel.announced.notify_one();
    wait_for("the rules are back", || kernel.tables.lock().unwrap().tables[&Table::Nat].contains_key("KUBE-SERVICES"))
        .await;
}

/// A UDP endpoint may have a hundred thousand flows.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_waits_only_for_a_piece_of_a_conntrack_dump() {
    let mut lab = DaemonLab::start(Duration::from_secs(3600));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let kernel = lab.kernels[0].clone();
    kernel.goes_on.store(true, Ordering::SeqCst);
    lab.publish(vec![slice("dns", &[30], "UDP")]);
    for host in 20..25 {
        let pieces = kernel.pieces.load(Ordering::SeqCst);
        wait_for("another piece", || kernel.pieces.load(Ordering::SeqCst) > pieces).await;
        // The dump continues: an unrelated change does not restart it.
        assert_eq!(
            lab.cost(vec![slice("web", &[host], "TCP")]).await,
            RequestCounts { restores: 1, ..RequestCounts::default() }
        );
    }
    lab.publish(vec![slice("dns", &[31], "UDP")]);
    wait_for("it begins anew", || kernel.asked.lock().unwrap().conntrack_dumps > 0).await;
    let pieces = kernel.pieces.load(Ordering::SeqCst);
    kernel.goes_on.store(false, Ordering::SeqCst);
    let deleted = || {
        let text = lab.metrics.text().unwrap();
        let name = r#"kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"}"#;
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    wait_for("all pieces count", || deleted() > pieces).await;
}

/// A predecessor's rules may be newer than the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_ends_no_flow_that_rules_have_sent_somewhere() {
    let mut lab = DaemonLab::start(Duration::from_secs(3600));
    let flow = |server: &str| {
        let (destination, server) = ("10.96.0.3:80".parse().unwrap(), server.parse().unwrap());
        let client = "10.244.0.9".parse().unwrap();
        Flow { protocol: Protocol::Udp, client, destination, server, translated: destination != server, by_ipvs: false }
    };
    let (known, unknown, early) = (flow("10.244.0.30:80"), flow("10.244.0.99:80"), flow("10.96.0.3:80"));
    let flows = Arc::clone(&lab.kernels[0].flows);
    *flows.lock().unwrap() = vec![known, unknown, early];
    let recalled = Some(SystemTime::now());
    lab.batches.send(Batch { changes: cluster(), recalled, ..Batch::default() }).unwrap();
    wait_for("flows that no rule has met go", || !flows.lock().unwrap().contains(&early)).await;
    wait_for("it is told", || lab.health.snapshot().recalled == recalled).await;
    assert_eq!(*flows.lock().unwrap(), [known, unknown]);
    // The API says the same.
    lab.publish(Vec::new());
    wait_for("the API decides", || *flows.lock().unwrap() == [known]).await;
    lab.applied(Family::V4).await;
    lab.applied(Family::V6).await;
    assert_eq!(lab.health.snapshot().recalled, None);
}

/// keepalived moves addresses; the sync period is an hour.
#[tokio::test(flavor = "multi_thread")]
async fn an_added_address_has_node_ports_at_once() {
    let ranges = NodePortAddresses::Ranges(vec!["172.18.0.0/24".parse().unwrap()]);
    let hour = Duration::from_secs(3600);
    let config = Config { node_port_addresses: ranges, sync_period: hour, ..Config::for_node("node-a") };
    let mut lab = DaemonLab::start_with(config, None, svcproxy::mode::assemble::iptables);
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    let kernel = lab.kernels[0].clone();
    let accepts = |address: &str| {
        let tables = kernel.tables.lock().unwrap();
        tables.tables[&Table::Nat]["KUBE-SERVICES"].iter().any(|line| line.contains(address))
    };
    assert!(!accepts("172.18.0.77/32"));
    for (addresses, what) in [(vec!["172.18.0.77".parse().unwrap()], "it comes"), (Vec::new(), "it goes")] {
        let is_there = !addresses.is_empty();
        kernel.addresses.lock().unwrap().local = addresses;
        kernel.moved.notify_one();
        wait_for(what, || accepts("172.18.0.77/32") == is_there).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_family_that_fails_or_hangs_delays_no_other() {
    let mut lab = DaemonLab::start(Duration::from_secs(1));
    lab.publish(cluster());
    lab.applied(Family::V4).await;
    lab.applied(Family::V6).await;
    let [v4, v6] = lab.kernels.clone();
    v6.fails.store(true, Ordering::SeqCst);
    v6.tables.lock().unwrap().flush();
    v6.announced.notify_one();
    wait_for("IPv6 fails again and again", || v6.asked.lock().unwrap().restores >= 3).await;
    let tries = v6.asked.lock().unwrap().restores;
    for host in 20..25 {
        assert_eq!(
            lab.cost(vec![slice("web", &[host], "TCP")]).await,
            RequestCounts { restores: 1, ..RequestCounts::default() }
        );
    }
    let more = v6.asked.lock().unwrap().restores - tries;
    assert!(more <= 5, "a family that fails is not tried with each change of the other: {more}");
    v6.hangs.store(true, Ordering::SeqCst);
    let tries = v6.asked.lock().unwrap().restores;
    wait_for("IPv6 hangs", || v6.asked.lock().unwrap().restores > tries).await;
    for host in 25..30 {
        lab.cost(vec![slice("web", &[host], "TCP")]).await;
    }
    let looked = |alive: bool| lab.health.snapshot().alive == alive;
    wait_for("a sync that does not end shows in /livez", || looked(false)).await;
    v6.fails.store(false, Ordering::SeqCst);
    v6.hangs.store(false, Ordering::SeqCst);
    lab.applied(Family::V6).await;
    wait_for("all is well again", || looked(true)).await;
    assert!(v4.tables.lock().unwrap().tables[&Table::Nat].contains_key("KUBE-SERVICES"));
}

fn count_panics() -> Arc<AtomicUsize> {
    let panics = Arc::new(AtomicUsize::new(0));
    let (usual, counted) = (std::panic::take_hook(), Arc::clone(&panics));
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::SeqCst);
        usual(panic);
    }));
    panics
}

/// A slow sync, or the cleanup of another mode, may outlive its runtime.
#[test]
fn a_task_that_outlives_the_runtime_does_not_panic() {
    let panics = count_panics();
    // Repeated, because a runner checks its events in random order.
    for _ in 0..20 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (asked, hangs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let leftovers = {
            let (asked, hangs) = (Arc::clone(&asked), Arc::clone(&hangs));
            Box::new(move |now: Instant| {
                asked.fetch_add(1, Ordering::SeqCst);
                wait_while(&hangs);
                Ok(Some(now + PATIENCE))
            })
        };
        let mut lab = runtime
            .block_on(async { DaemonLab::start_beside(Duration::from_secs(3600), Some(leftovers as LeftoverCleanup)) });
        let kernel = lab.kernels[0].clone();
        lab.publish(cluster());
        runtime.block_on(wait_for("leftovers hang", || asked.load(Ordering::SeqCst) > 0));
        kernel.hangs.store(true, Ordering::SeqCst);
        let restores = kernel.asked.lock().unwrap().restores;
        lab.publish(vec![slice("web", &[12], "TCP")]);
        runtime.block_on(wait_for("a sync hangs", || kernel.asked.lock().unwrap().restores > restores));
        drop(lab);
        runtime.shutdown_background();
        hangs.store(false, Ordering::SeqCst);
        kernel.hangs.store(false, Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while Arc::strong_count(&kernel.tables) > 1 || Arc::strong_count(&hangs) > 1 {
            assert!(Instant::now() < deadline, "something goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0);
}
