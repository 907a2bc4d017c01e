//! Every scenario passes: on this kernel in iptables mode (by netlink and by both variants' commands), nftables mode
//! and userspace mode, or in a microVM. Scenarios of hours are run by hand (docs/determinism.md).

use crate::Only;
use crate::support::runs::{folder, names_for_host, names_for_microvm, run, run_in_microvm};
use libtest_mimic::{Completion, Failed, Trial};
use svclab::mode::Mode;
use svclab::scenario::load;

pub fn trials(only: &Only) -> Vec<Trial> {
    let ways = [
        ("nft", Mode::Iptables, &["--mode", "iptables", "--iptables-variant", "nft"]),
        ("nft-commands", Mode::Iptables, &["--mode", "iptables", "--iptables-variant", "nft-commands"]),
        ("legacy", Mode::Iptables, &["--mode", "iptables", "--iptables-variant", "legacy"]),
        ("nftables", Mode::Nftables, &["--mode", "nftables", "--iptables-variant", "nft"]),
        ("userspace", Mode::Userspace, &["--mode", "userspace", "--iptables-variant", "nft"]),
    ];
    let trials = names_for_host().into_iter().filter(|name| only.may_start_with(&format!("kept::{name}::")));
    let trials = trials.flat_map(|name| {
        let scenario = load(&folder().join(&name).with_extension("yaml"), 0).expect("a scenario can be read");
        // A scenario about one variant runs with that variant only.
        let variants = ["nft", "nft-commands", "legacy"].into_iter();
        let others = variants.filter(|way| scenario.variant.is_some_and(|own| !way.starts_with(own.name())));
        let others: Vec<&str> = others.collect();
        let is_for = |(way, mode, _): &(&str, Mode, _)| scenario.modes.contains(mode) && !others.contains(way);
        let its_own = ways.into_iter().filter(is_for).collect::<Vec<_>>();
        // Other tests compare the commands' rules with netlink's, so most runs with the commands are nightly.
        let is_about_commands = scenario.variant.is_some() || name == "hairpin" || name.starts_with("command-");
        its_own.into_iter().map(move |(way, _, flags)| {
            let name = name.clone();
            let nightly = ["legacy", "nft-commands"].contains(&way) && !is_about_commands;
            let trial = Trial::ignorable_test(format!("kept::{name}::{way}"), move || kept(&name, flags));
            trial.with_ignored_flag(nightly)
        })
    });
    let all_in_microvm = Mode::ALL.map(|mode| {
        let run = move || kept_in_microvm(mode, |_| true);
        Trial::ignorable_test(format!("kept::microvm::all_in_{mode}"), run).with_ignored_flag(true)
    });
    let in_ipvs = Trial::ignorable_test("kept::microvm::the_quick_ones_in_ipvs", || {
        kept_in_microvm(Mode::Ipvs, |name| QUICK_IN_MICROVM.contains(&name))
    });
    trials.chain(all_in_microvm).chain([in_ipvs]).collect()
}

/// The usual test run's scenarios in IPVS mode, in a microVM: most machines have no IPVS.
const QUICK_IN_MICROVM: [&str; 3] = ["microvm/ipvs-port-reuse", "microvm/ipvs-schedulers", "microvm/sctp"];

fn kept(name: &str, flags: &[&str]) -> Result<Completion, Failed> {
    let run = run(name, flags);
    match run.status {
        0 if run.scenario["passed"] == true => Ok(Completion::Completed),
        3 => crate::support::unable(&run.stderr),
        status => Err(format!("exit status {status}\n{}", run.stderr).into()),
    }
}

/// Runs all wanted scenarios in one boot of a microVM.
fn kept_in_microvm(mode: Mode, is_wanted: fn(&str) -> bool) -> Result<Completion, Failed> {
    let is_for = |name: &String| {
        let scenario = load(&folder().join(name).with_extension("yaml"), 0);
        scenario.is_ok_and(|scenario| scenario.modes.contains(&mode))
    };
    let names =
        names_for_microvm().into_iter().filter(|name| !name.ends_with("-hours") && is_wanted(name)).filter(is_for);
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let runs = run_in_microvm(&mode.to_string(), &names, &[]);
    for (name, run) in names.iter().zip(&runs) {
        if run.status == 3 {
            return crate::support::unable(&run.stderr);
        }
        if run.scenario["passed"] != true {
            return Err(format!("{name} in {mode} mode, exit status {}\n{}", run.status, run.stderr).into());
        }
    }
    Ok(Completion::Completed)
}
