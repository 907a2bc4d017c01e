use std::fs;
use std::path::Path;

use crate::support::{
    Proxy, changes_of_every_kind, configs_of_every_rule, dump, every_kind, inside, shell, svcproxy, wait_for,
    write_file,
};

use iptables::IPTables;
use svcproxy::config::{Config, Variant};
use svcproxy::kernel::addresses;
use svcproxy::kernel::iptables::{Commands, Iptables, Table};
use svcproxy::mode::assemble;
use svcproxy::model::Family;

const VARIANTS: [(&str, Variant); 2] = [("nft", Variant::Nft), ("legacy", Variant::Legacy)];
const FLAGS: [&str; 4] = ["--hostname-override", "node-a", "--cluster-cidr", "10.244.0.0/16,fd00:244::/64"];

fn write(directory: &Path, text: &str) {
    write_file(directory, "cluster.json", text);
}

/// Adds rules to all tables, which iptables would otherwise create at the first read.
fn foreign_rules(variant: &str) {
    for family in ["iptables", "ip6tables"] {
        let command: &'static str = format!("{family}-{variant}").leak();
        let tables = IPTables { cmd: command, has_check: true, has_wait: true, is_numeric: true };
        for table in ["mangle", "filter", "nat"] {
            tables.new_chain(table, "FOREIGN").unwrap();
            tables.append_unique(table, "OUTPUT", "-j FOREIGN").unwrap();
        }
        let rule = "-p tcp --dport 9999 -m comment --comment 'not yours' -j DROP";
        tables.append_unique("filter", "FOREIGN", rule).unwrap();
    }
}

fn clear(variant: &str) {
    for family in ["iptables", "ip6tables"] {
        // In one transaction, like a firewall's reload: else the proxy would use the chains again before their
        // deletion.
        let nothing = "for table in mangle filter nat; do printf '*%s\\nCOMMIT\\n' $table; done";
        shell(&format!("{nothing} | {family}-{variant}-restore"));
    }
}

fn start(variant: &str, manifests: &Path) -> Proxy {
    let mut arguments = FLAGS.to_vec();
    arguments.extend(["--manifests", manifests.to_str().unwrap(), "--iptables-variant", variant]);
    arguments.extend(["--iptables-min-sync-period", "10ms"]);
    Proxy::start(&arguments)
}

#[test]
fn a_second_synchronisation_sends_nothing() {
    if !inside!() {
        return;
    }
    let small = changes_of_every_kind(&[2, 3, 4, 5, 6, 7, 8]);
    // Over a thousand endpoints, whose rules have no comments.
    let large = changes_of_every_kind(&(2..=250).collect::<Vec<u8>>());
    let configs = configs_of_every_rule();
    for (name, variant) in VARIANTS {
        for family in Family::ALL {
            let of_small = configs.iter().map(|config| (config, &small));
            for (config, changes) in of_small.chain([(&configs[0], &large)]) {
                let proxy = || {
                    let config = Config { variant, ..config.clone() };
                    let mut proxy = assemble::iptables(&config, family, Commands::find(family, variant).unwrap());
                    proxy.set_addresses(&addresses::read().unwrap());
                    proxy.apply(changes);
                    proxy
                };
                let first = proxy().sync().unwrap();
                assert!(first.full && !first.is_empty(), "{name} {family} {config:?}");
                let second = proxy().sync().unwrap();
                assert!(second.full && second.is_empty(), "{name} {family} {config:?}: {second:?}\n{}", dump(name));
            }
        }
        clear(name);
    }
}

/// Netlink and socket options count the references that the commands show.
#[test]
fn a_chain_is_in_use_by_its_rules_and_by_what_leads_to_it() {
    if !inside!() {
        return;
    }
    for (name, variant) in VARIANTS {
        for (family, command) in [(Family::V4, "iptables"), (Family::V6, "ip6tables")] {
            let mut commands = Commands::find(family, variant).unwrap();
            let mut seen = |table| commands.reference_counts(table, &["A", "B"]).unwrap();
            let run = |arguments: &str| drop(shell(&format!("{command}-{name} -t nat {arguments}")));
            for table in Table::ALL {
                assert_eq!(seen(table), [None, None], "{name} {family} {table}: there are no tables");
            }
            // A rule without a target continues with the next entry, the head of chain B.
            ["-N A", "-N B", "-N OTHER", "-A A -p tcp"].into_iter().for_each(run);
            assert_eq!(seen(Table::Nat), [Some(1), Some(0)], "{name} {family}");
            let rules = [
                "-A OUTPUT -p udp -m comment --comment x -j A",
                "-A OTHER -m addrtype --dst-type LOCAL -g B",
                "-A A -p tcp -j MARK --set-xmark 1",
                "-A A -j B",
                "-A B -j RETURN",
            ];
            rules.into_iter().for_each(run);
            assert_eq!(seen(Table::Nat), [Some(4), Some(3)], "{name} {family}");
            assert_eq!(seen(Table::Mangle), [None, None], "{name} {family}: of one table");
            run("-D OUTPUT 1");
            assert_eq!(seen(Table::Nat), [Some(3), Some(3)], "{name} {family}: a jump less");
            run("-F");
            assert_eq!(seen(Table::Nat), [Some(0), Some(0)], "{name} {family}: chains without rules");
            run("-X A");
            assert_eq!(seen(Table::Nat), [None, Some(0)], "{name} {family}: a chain less");
        }
        clear(name);
    }
}

#[test]
fn a_proxy_killed_during_a_sync_leaves_a_state_that_a_restart_repairs() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    for (variant, _) in VARIANTS {
        let hosts: Vec<u8> = (2..if variant == "nft" { 12 } else { 60 }).collect();
        foreign_rules(variant);
        write(manifests.path(), &every_kind(7, &hosts));
        let mut clean = start(variant, manifests.path());
        clean.synced(Some("7"));
        clean.kill();
        let expected = dump(variant);
        assert!(expected.contains("KUBE-SEP-") && expected.contains("not yours"));

        for round in 0..4u32 {
            write(manifests.path(), &every_kind(6, &hosts[..1 + usize::try_from(round).unwrap() % hosts.len()]));
            let mut other = start(variant, manifests.path());
            other.synced(Some("6"));
            other.kill();
            write(manifests.path(), &every_kind(7, &hosts));
            let mut victim = start(variant, manifests.path());
            let children = format!("cat /proc/{}/task/*/children", victim.0.id());
            // The victim dies during a dump, a restore, or a change of a single rule.
            let wanted = ["save", "restore", "tables", "restore"][round as usize];
            wait_for("a command to run", || {
                let pids = std::process::Command::new("sh").args(["-c", &children]).output().ok()?;
                let pids = String::from_utf8_lossy(&pids.stdout).into_owned();
                let names =
                    pids.split_whitespace().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok());
                let synced = crate::support::http_get("127.0.0.1:10256", "/healthz")
                    .is_some_and(|b| b.starts_with("HTTP/1.1 200"));
                (names.into_iter().any(|name| name.contains(wanted)) || synced).then_some(())
            });
            victim.kill();
            let mut heir = start(variant, manifests.path());
            heir.synced(Some("7"));
            heir.kill();
            assert_eq!(dump(variant), expected, "{variant}, killed at {wanted}");
        }
        assert!(svcproxy(&["--cleanup", "--iptables-variant", variant]).status.success());
        clear(variant);
    }
}

#[test]
fn a_foreign_flush_is_repaired_and_a_cleanup_leaves_only_the_guard() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    write(manifests.path(), &every_kind(1, &[2, 3]));
    for (variant, _) in VARIANTS {
        foreign_rules(variant);
        let before = dump(variant);
        // The default sync period of 30 s exceeds the patience of this test: the watch triggers the repair.
        let proxy = start(variant, manifests.path());
        proxy.synced(Some("1"));
        let full = dump(variant);
        for family in ["iptables", "ip6tables"] {
            shell(&format!("{family}-{variant}-save > /run/foreign.{family}"));
        }
        clear(variant);
        foreign_rules(variant);
        wait_for("the rules to come back", || (dump(variant).lines().count() == full.lines().count()).then_some(()));
        drop(proxy);
        assert!(svcproxy(&["--cleanup", "--iptables-variant", variant]).status.success());
        let left = dump(variant);
        let guarded = left.lines().filter(|line| line.contains("KUBE-FIREWALL")).count();
        // The guard of the loopback range: a chain, its rule, and two jumps.
        assert_eq!(guarded, 4, "{variant}: {left}");
        let lines = left.lines().filter(|line| !line.contains("KUBE-FIREWALL"));
        assert_eq!(lines.collect::<Vec<_>>(), before.lines().collect::<Vec<_>>(), "{variant}");
        clear(variant);
    }
}

/// Deletes chains like a second proxy that knows no service.
fn remove_services(family: &str, variant: &str) {
    let saved = shell(&format!("{family}-{variant}-save -t nat"));
    let chains = saved.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next());
    let prefixes = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-"];
    let of_services: Vec<&str> =
        chains.filter(|chain| prefixes.iter().any(|prefix| chain.starts_with(prefix))).collect();
    assert!(of_services.len() > 10, "{saved}");
    let emptied = ["KUBE-SERVICES", "KUBE-NODEPORTS"].iter().chain(&of_services);
    let mut input = String::from("*nat\n");
    input.extend(emptied.map(|chain| format!(":{chain} - [0:0]\n")));
    input.extend(of_services.iter().map(|chain| format!("-X {chain}\n")));
    fs::write("/run/second", input + "COMMIT\n").unwrap();
    shell(&format!("{family}-{variant}-restore --noflush < /run/second"));
}

#[test]
fn deletions_that_leave_the_canaries_are_repaired() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    write(manifests.path(), &every_kind(1, &[2, 3]));
    let damages = [
        "-t nat -F",
        "-t filter -F",
        "-t nat -D PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
        "-t nat -D KUBE-SERVICES 1",
        "a second proxy",
    ];
    for (variant, _) in VARIANTS {
        let mut arguments = FLAGS.to_vec();
        arguments.extend(["--manifests", manifests.path().to_str().unwrap(), "--iptables-variant", variant]);
        arguments.extend(["--iptables-sync-period", "1h"]);
        let proxy = Proxy::start(&arguments);
        proxy.synced(Some("1"));
        let full = dump(variant);
        for damage in damages {
            for family in ["iptables", "ip6tables"] {
                if damage == "a second proxy" {
                    remove_services(family, variant);
                } else {
                    shell(&format!("{family}-{variant} {damage}"));
                }
            }
            wait_for(&format!("{variant}: the rules after {damage}"), || {
                (dump(variant).lines().count() == full.lines().count()).then_some(())
            });
        }
        drop(proxy);
        assert!(svcproxy(&["--cleanup", "--iptables-variant", variant]).status.success());
        clear(variant);
    }
}

#[test]
fn rules_in_the_other_variants_tables_are_reported_and_cleaned_up() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    write(manifests.path(), &every_kind(1, &[2, 3]));
    let log = manifests.path().join(".log");
    for (own, other) in [("nft", "legacy"), ("legacy", "nft")] {
        let start_logging = || {
            let mut arguments = FLAGS.to_vec();
            arguments.extend(["--manifests", manifests.path().to_str().unwrap(), "--iptables-variant", own]);
            arguments.extend(["--healthz-bind-address", "127.0.0.1:10256"]);
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_svcproxy"));
            let proxy = Proxy(command.args(&arguments).stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
            proxy.synced(Some("1"));
            fs::read_to_string(&log).unwrap()
        };
        let words = format!("the {other} tables of iptables also contain rules of a service proxy");
        assert!(!start_logging().contains(&words), "{own}: there are none");
        let mut predecessor = start(other, manifests.path());
        predecessor.synced(Some("1"));
        predecessor.kill();
        let beside = dump(other);
        let reported = start_logging();
        assert_eq!(reported.matches(&words).count(), 2, "{own}: one line for each family: {reported}");
        let counted = |family: &str| {
            let all = shell(&format!("{family}-{other}-save | grep -e '^:KUBE-' | grep -v KUBE-FIREWALL | wc -l"));
            format!("chains={}", all.trim())
        };
        for family in ["iptables", "ip6tables"] {
            assert!(reported.contains(&counted(family)), "{own} {family}: {reported}");
        }
        assert_eq!(dump(other), beside, "{own}: nothing is taken away at a start");
        assert!(svcproxy(&["--cleanup", "--iptables-variant", own]).status.success());
        for variant in [own, other] {
            let left = dump(variant);
            let ours: Vec<&str> =
                left.lines().filter(|line| line.contains("KUBE-") && !line.contains("KUBE-FIREWALL")).collect();
            assert_eq!(ours, [""; 0], "{variant}");
            clear(variant);
        }
    }
}

#[test]
fn edits_reach_the_kernel_and_bad_ones_change_nothing() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir_in("/run").unwrap();
    for (variant, _) in VARIANTS {
        write(manifests.path(), &every_kind(1, &[2, 3]));
        let proxy = start(variant, manifests.path());
        proxy.synced(Some("1"));
        assert!(!dump(variant).contains("10.244.1.77"));
        write(manifests.path(), &every_kind(2, &[2, 77]));
        proxy.synced(Some("2"));
        let good = dump(variant);
        assert!(good.contains("--to-destination 10.244.1.77:8080") && !good.contains("10.244.1.3"));
        write(manifests.path(), "{\"kind\": [");
        fs::write(
            manifests.path().join("evil.yaml"),
            "apiVersion: v1\nkind: Service\nmetadata: {name: 'x\" -j ACCEPT'}\nspec: {clusterIP: 10.96.7.7, ports: [{port: 1}]}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {name: good}\nspec: {clusterIP: 10.96.7.8, ports: [{port: 1}]}\n",
        )
        .unwrap();
        wait_for("the good document beside the bad ones", || dump(variant).contains("10.96.7.8").then_some(()));
        let after: Vec<String> =
            dump(variant).lines().filter(|l| !l.contains("10.96.7.8")).map(str::to_owned).collect();
        assert_eq!(after, good.lines().collect::<Vec<_>>());
        fs::remove_file(manifests.path().join("evil.yaml")).unwrap();
        drop(proxy);
        svcproxy(&["--cleanup", "--iptables-variant", variant]);
    }
}

#[test]
fn without_rights_one_sentence_says_so() {
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"])
        .args([env!("CARGO_BIN_EXE_svcproxy"), "--cleanup"])
        .output();
    let Ok(output) = output.map(|o| String::from_utf8_lossy(&o.stderr).into_owned()) else { return };
    // Only root can become nobody; another user has no rights either.
    let text = if output.contains("setpriv:") {
        String::from_utf8_lossy(&svcproxy(&["--cleanup"]).stderr).into_owned()
    } else {
        output
    };
    assert!(
        text.contains("run as root, or with CAP_NET_ADMIN") || text.contains("install the package iptables"),
        "{text}"
    );
    assert!(!text.contains("panicked"), "{text}");
}
