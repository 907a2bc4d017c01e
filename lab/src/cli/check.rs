use std::path::PathBuf;

use clap::Args;

use crate::complete;
use crate::exit::Exit;
use crate::find;
use crate::scenario::{explain, warnings};

#[derive(Args)]
pub(super) struct CheckArgs {
    /// Scenario files, or names under scenarios/; `-`: a scenario from standard input.
    #[arg(required = true, value_name = "FILE", add = complete::scenarios())]
    files: Vec<PathBuf>,
    /// Decides cluster IPs and node ports that a scenario leaves open.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(super) fn check(args: &CheckArgs) -> Result<u8, Exit> {
    for scenario in find::load_all(&args.files, args.seed)? {
        print!("{}", explain(&scenario).map_err(|error| Exit::usage(error.to_string()))?);
        for warning in warnings(&scenario) {
            eprintln!("{warning}");
        }
    }
    Ok(0)
}
