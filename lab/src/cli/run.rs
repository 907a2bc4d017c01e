//! `svclab run-order` takes [`RunArgs`] as JSON.

use clap::Args;

use crate::exit::Exit;
use crate::schedule::{self, RunArgs};

#[derive(Args)]
pub(super) struct RunOrderArgs {
    #[arg(value_name = "JSON")]
    order: String,
}

pub(super) fn run_order(args: &RunOrderArgs) -> Result<u8, Exit> {
    let order: RunArgs =
        serde_json::from_str(&args.order).map_err(|error| Exit::usage(format!("not an order: {error}")))?;
    schedule::run(&order)
}
