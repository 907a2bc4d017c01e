//! `svclab reach`: a table of all callers by all targets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use svclab_audit::audit::{Reach, ReachTable, reach};
use svclab_sim::render::printable;

use crate::complete;
use crate::exit::Exit;
use crate::find;
use crate::mode::Mode;
use crate::scenario::run::{ObjectSource, ProxyUnderTest};
use crate::scenario::simulated::lab::SimLab;
use crate::scenario::simulated::render::Svcproxy;
use crate::schedule::check_modes;

#[derive(Args)]
pub(super) struct ReachArgs {
    /// An archive of `svclab collect`, or a scenario: its cluster before its first step, with the rules that svcproxy would program.
    #[arg(value_name = "SCENARIO|NODE.tar", add = complete::scenarios())]
    of: PathBuf,
    /// For a scenario: the mode of svcproxy [default: the scenario's first mode].
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// For a scenario: svcproxy [default: $SVCPROXY, or the one beside this program].
    #[arg(long, value_name = "PROGRAM")]
    proxy: Option<PathBuf>,
}

pub(super) fn run(args: &ReachArgs) -> Result<u8, Exit> {
    let is_archive = args.of.extension().is_some_and(|extension| extension == "tar");
    let table = if is_archive { of_archive(args)? } else { of_scenario(args)? };
    print!("{}", text(&table));
    let flags = format!("{}{}", if is_archive { "" } else { "--scenario " }, args.of.display());
    println!("\n`svclab explain {flags} --from CALLER --to TARGET` shows why.");
    Ok(0)
}

fn of_archive(args: &ReachArgs) -> Result<ReachTable, Exit> {
    if args.mode.is_some() || args.proxy.is_some() {
        return Err(Exit::usage("--mode and --proxy are for scenarios: an archive has the rules of its proxy"));
    }
    let snapshot = super::audit::read(&args.of)?;
    reach(&snapshot).map_err(|error| Exit::usage(format!("{}: {error}", args.of.display())))
}

fn of_scenario(args: &ReachArgs) -> Result<ReachTable, Exit> {
    let found = find::proxy(args.proxy.as_deref(), ObjectSource::Api)?;
    check_modes(&found, args.mode.as_slice())?;
    let ProxyUnderTest::Own(proxy) = found else {
        return Err(Exit::usage("--proxy: expected svcproxy, which can be asked what it would program"));
    };
    let scenario = find::load_one(&args.of, 0)?;
    let mode = args.mode.unwrap_or_else(|| scenario.modes.first().copied().unwrap_or(Mode::Iptables));
    let lab = SimLab::start(&scenario, Arc::new(Svcproxy(proxy)), mode);
    Ok(lab.map_err(|error| Exit::usage(error.to_string()))?.reach())
}

fn text(table: &ReachTable) -> String {
    let mut text = String::new();
    for (number, caller) in table.callers.iter().enumerate() {
        let _ = writeln!(text, "{:>3}  {caller}", number + 1);
    }
    let width = table.rows.iter().map(|row| row.target.chars().count()).max().unwrap_or_default();
    let cells: Vec<Vec<String>> = table.rows.iter().map(|row| row.cells.iter().map(sign).collect()).collect();
    let wide = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or_default().max(2);
    let head: String = (0..table.callers.len()).map(|column| format!(" {:>1$}", column + 1, wide(column))).collect();
    let _ = writeln!(text, "\n{:width$}{head}", "");
    for (row, cells) in table.rows.iter().zip(&cells) {
        let cells: String = cells.iter().enumerate().map(|(at, cell)| format!(" {cell:>0$}", wide(at))).collect();
        let _ = writeln!(text, "{:width$}{cells}", row.target);
    }
    text.push_str("\n. answered, R refused, X no answer, 1/2 answered in part, - no way to call, ? not known\n");
    let unknown = table.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| match cell {
        Reach::Unknown(why) => Some(why),
        _ => None,
    });
    unknown.collect::<BTreeSet<_>>().into_iter().for_each(|why| text.push_str(&format!("? {why}\n")));
    printable(&text)
}

fn sign(cell: &Reach) -> String {
    match cell {
        Reach::Answered => ".".to_owned(),
        Reach::InPart(share) => share.clone(),
        Reach::Refused => "R".to_owned(),
        Reach::Dropped => "X".to_owned(),
        Reach::NoCall => "-".to_owned(),
        Reach::Unknown(_) => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use svclab_audit::audit::ReachRow;

    use super::*;

    #[test]
    fn a_cell_has_a_sign_and_an_unknown_one_its_reason_once() {
        let row = |target: &str, cells: &[Reach]| ReachRow { target: target.to_owned(), cells: cells.to_vec() };
        let unknown = || Reach::Unknown("a program".to_owned());
        let table = ReachTable {
            callers: ["node-a", "pod/web"].map(str::to_owned).to_vec(),
            rows: vec![
                row("service/web", &[Reach::Answered, Reach::InPart("1/2".to_owned())]),
                row("nodePort/web@node-a", &[unknown(), unknown()]),
                row("externalIP/web", &[Reach::Dropped, Reach::Refused]),
            ],
        };
        let expected = "  1  node-a\n  2  pod/web\n\n                     1   2\n\
                        service/web          . 1/2\nnodePort/web@node-a  ?   ?\nexternalIP/web       X   R\n";
        let text = text(&table);
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.matches("? a program").count(), 1);
    }
}
