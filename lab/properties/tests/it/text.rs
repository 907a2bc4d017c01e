//! No string of an object escapes its place in a rule.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use svclab_oracle::generate::recipes;
use svclab_oracle::{Mode, Objects};
use svclab_properties::node::families;
use svclab_properties::node_states::read;
use svclab_properties::proxies::{Kernel, Proxies, changes};
use svclab_properties::sweep::{cases, in_mode};

use crate::check_all;

fn odd() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "\n-A INPUT -j ACCEPT\n",
        "\nCOMMIT\n",
        "\" -j ACCEPT",
        "' -j DROP",
        "\\",
        "\"",
        "#",
        " ",
        "\t",
        "\r\n",
        "\0",
        "-j",
        "*nat",
        ":X - [0:0]",
        "10.96.0.1",
        "010.96.000.001",
        "::ffff:10.96.0.1",
        "10.96.0.1/8",
        "0.0.0.0/0",
        "fe80::1%eth0",
        "TCP",
        "tcp",
        "a",
        "web",
        "a.b",
        "A_B",
        "-",
        "..",
        "$(id)",
        "`id`",
        "ü",
        "\u{202e}",
        "🦀",
        "%s",
        "99999999999",
        "--comment",
    ]);
    prop_oneof![
        4 => prop::collection::vec(parts, 1..4).prop_map(|parts| parts.concat()),
        1 => any::<String>(),
        1 => "[a-z0-9]([-a-z0-9]{0,70}[a-z0-9])?",
    ]
}

fn replace(value: &mut Value, at: &mut usize, text: &str) -> bool {
    match value {
        Value::String(own) => {
            if *at == 0 {
                text.clone_into(own);
                return true;
            }
            *at -= 1;
            false
        }
        Value::Array(all) => all.iter_mut().any(|one| replace(one, at, text)),
        Value::Object(all) => all.values_mut().any(|one| replace(one, at, text)),
        _ => false,
    }
}

fn strings(value: &Value) -> usize {
    match value {
        Value::String(_) => 1,
        Value::Array(all) => all.iter().map(strings).sum(),
        Value::Object(all) => all.values().map(strings).sum(),
        _ => 0,
    }
}

/// Replaces string number `at`, counted over all objects.
fn spoil_one<T: Serialize + DeserializeOwned>(objects: &mut [T], at: &mut usize, text: &str) -> bool {
    objects.iter_mut().any(|object| {
        let mut value = serde_json::to_value(&*object).unwrap();
        let count = strings(&value);
        if *at >= count {
            *at -= count;
            return false;
        }
        replace(&mut value, at, text);
        if let Ok(spoilt) = serde_json::from_value(value) {
            *object = spoilt;
        }
        true
    })
}

fn spoil(objects: &mut Objects, at: usize, text: &str) {
    fn count<T: Serialize>(objects: &[T]) -> usize {
        objects.iter().map(|object| strings(&serde_json::to_value(object).unwrap())).sum()
    }
    let all = count(&objects.services) + count(&objects.slices) + count(&objects.nodes);
    let mut at = at % all.max(1);
    let _ = spoil_one(&mut objects.services, &mut at, text)
        || spoil_one(&mut objects.slices, &mut at, text)
        || spoil_one(&mut objects.nodes, &mut at, text);
}

/// Checks that a listing has as many rules as were written, in built-in and `KUBE-` chains only.
fn check(mode: Mode, objects: &Objects, world: &svclab_oracle::World) -> Result<bool, TestCaseError> {
    let (changes, refused) = changes(objects);
    for node in &world.nodes {
        let mut proxies = Proxies::fresh(world, &node.name);
        proxies.apply(&changes);
        proxies.sync().map_err(TestCaseError::fail)?;
        let program = read(&proxies.dump()).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut kernels: Vec<Kernel> = proxies.kernels();
        let written: usize = kernels
            .iter_mut()
            .map(|kernel| match kernel {
                Kernel::Nftables(all) => {
                    all.0.table.iter().flat_map(|table| table.chains.values()).map(|chain| chain.rules.len()).sum()
                }
                other => {
                    let chains = other.rules().into_iter().flat_map(|rules| rules.tables.values());
                    chains.flat_map(|chains| chains.values()).map(Vec::len).sum::<usize>()
                }
            })
            .sum();
        prop_assert_eq!(program.v4.len() + program.v6.len() + program.nft.len(), written);
        prop_assert_eq!(program.nft.unknown().count(), 0);
        prop_assert!(families(world).len() == kernels.len());
        for table in program.v4.tables.iter().chain(&program.v6.tables) {
            let strange = table.chains.iter().find(|chain| {
                !chain.name.starts_with("KUBE-") && !table.name.built_in().contains(&chain.name.as_str())
            });
            prop_assert!(strange.is_none(), "{} {:?}", mode.name(), strange);
        }
    }
    Ok(!refused.is_empty())
}

#[test]
fn no_string_escapes_its_place() {
    let refused = std::cell::Cell::new(0u32);
    let spoilt = prop::collection::vec((any::<usize>(), odd()), 1..4);
    let cases = (cases() / 2).max(1);
    let modes = prop::sample::select(Mode::ALL.to_vec());
    check_all(300, cases, &(recipes(), spoilt, modes), |(recipe, spoilt, mode)| {
        let mut cluster = in_mode(&recipe, mode);
        for (at, text) in spoilt {
            spoil(&mut cluster.objects, at, &text);
        }
        refused.set(refused.get() + u32::from(check(mode, &cluster.objects, &cluster.world)?));
        Ok(())
    });
    println!("of {} clusters {} had an object that was refused", cases, refused.get());
    assert!(refused.get() > cases / 20, "odd strings are refused");
}
