use std::path::PathBuf;

use clap::Args;

use crate::complete;
use crate::exit::Exit;
use crate::find;

#[derive(Args)]
pub(super) struct ObjectsArgs {
    /// Scenario file, or name under scenarios/.
    #[arg(add = complete::scenarios())]
    file: PathBuf,
    /// Decides cluster IPs and node ports that the scenario leaves open.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the proxies' configuration instead, a KubeProxyConfiguration for the scenario's first mode.
    #[arg(long)]
    configuration: bool,
}

pub(super) fn objects(args: &ObjectsArgs) -> Result<u8, Exit> {
    let scenario = find::load_one(&args.file, args.seed)?;
    if args.configuration {
        println!(
            "{:#}",
            scenario.proxy.configuration(scenario.modes.first().copied().unwrap_or_default(), Default::default())
        );
    } else {
        let store = scenario.initial_objects().map_err(|error| Exit::usage(error.to_string()))?;
        println!("{:#}", store.list());
    }
    Ok(0)
}
