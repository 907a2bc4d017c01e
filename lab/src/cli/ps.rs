use std::time::{Duration, SystemTime};

use clap::Args;
use svclab_netns::labs::{self, RunningLab};

use super::labs::{LabChoice, name_of};
use crate::complete;
use crate::exit::{Exit, FAILED};

#[derive(Args)]
pub(super) struct DownArgs {
    /// The lab; needed if more than one is up.
    #[arg(add = complete::labs())]
    name: Option<String>,
    /// Every lab of this user.
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

pub(super) fn ps() -> u8 {
    let labs = labs::labs();
    let rows: Vec<[String; 5]> = labs.iter().filter_map(|lab| row(lab, SystemTime::now())).collect();
    if rows.is_empty() {
        eprintln!("no lab that this user has started is up here; `svclab up FILE` builds one");
        return 0;
    }
    let head = ["NAME", "SCENARIO", "MODE", "AGE", "PID"].map(str::to_owned);
    print!("{}", super::table::lines(&[&[head], &rows[..]].concat(), ""));
    0
}

fn row(lab: &RunningLab, now: SystemTime) -> Option<[String; 5]> {
    let about = lab.about.as_ref()?;
    let age = age(now.duration_since(lab.since).unwrap_or_default());
    Some([about.name.clone(), about.scenario.clone(), about.mode.clone(), age, lab.outer.to_string()])
}

/// Returns the age in its largest unit, hours and days with the next smaller one.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

pub(super) fn down(args: &DownArgs) -> Result<u8, Exit> {
    let ended = if args.all {
        labs::labs().into_iter().filter(|lab| lab.about.is_some()).collect()
    } else {
        vec![LabChoice::named(args.name.clone()).find()?]
    };
    for lab in ended {
        let name = name_of(&lab);
        let failed = |error| Exit { status: FAILED, message: format!("lab {name} did not end: {error}") };
        labs::end(&lab).map_err(failed)?;
        println!("{name} is down");
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_at_most_two_units() {
        for (seconds, expected) in [(0, "0s"), (119, "119s"), (3_599, "59m"), (7_260, "2h1m"), (180_000, "2d2h")] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
