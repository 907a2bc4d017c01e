//! Audits the kinds of nodes, and prints findings: `node_kinds [KIND [MODE]]`.

#![allow(clippy::print_stdout, reason = "it prints")]

use svclab_audit::audit::Report;
use svclab_oracle::Mode;
use svclab_properties::node_kinds::ALL;

fn main() {
    let mut wanted = std::env::args().skip(1);
    let (kind, mode) = (wanted.next(), wanted.next());
    for kind in ALL.iter().filter(|one| kind.as_ref().is_none_or(|kind| one.name.contains(kind.as_str()))) {
        let of_mode = |one: &&Mode| mode.as_ref().is_none_or(|mode| one.name() == mode);
        for mode in kind.modes.iter().filter(of_mode) {
            if std::env::var_os("DUMP").is_some()
                && let Ok(snapshot) = kind.snapshot(*mode, None)
            {
                let texts = [snapshot.nft_v4, snapshot.nft, snapshot.sets, snapshot.servers];
                texts.into_iter().flatten().for_each(|text| println!("{text}"));
            }
            match kind.audit(*mode, None) {
                Ok(report) => print(&format!("{} {}", kind.name, mode.name()), &report),
                Err(error) => println!("!! {} {}: {error}", kind.name, mode.name()),
            }
            for twin in kind.twins(*mode) {
                match kind.audit(*mode, Some(&twin)) {
                    Ok(report) if report.is_clean() => {
                        println!("!! {} {}: missed: {}", kind.name, mode.name(), twin.name)
                    }
                    Ok(_) => {}
                    Err(error) => println!("!! {} {}: {error}", kind.name, mode.name()),
                }
            }
        }
    }
}

fn print(name: &str, report: &Report) {
    let wrong: Vec<_> = report.wrong().collect();
    let not_judged: usize = report.not_judged.iter().map(|one| one.count).sum();
    println!("{name}: {} calls, {} findings, {not_judged} not judged", report.calls, wrong.len());
    for finding in wrong {
        println!("    {} {} {} ({})", finding.kind, finding.service, finding.frontend, finding.count);
        println!("        {:?}", finding.calls);
        println!(
            "        promised {}\n        found    {}\n        cause    {}",
            finding.promised, finding.found, finding.cause
        );
        if std::env::var_os("WAYS").is_some() {
            println!("{}", finding.way);
        }
    }
    for one in &report.not_judged {
        println!("    not judged: {} ({}, {})", one.why, one.count, one.first);
    }
    report.not_asked.iter().for_each(|line| println!("    not asked: {line}"));
    if std::env::var_os("ASSUMED").is_some() {
        report.assumed.iter().for_each(|line| println!("    assumed: {line}"));
    }
}
