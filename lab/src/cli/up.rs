//! `svclab up`

use std::path::PathBuf;

use clap::Args;
use svclab_netns::labs::{self, About};
use svclab_netns::sandbox;

use super::labs::new_name;
use super::run_args::ModeArg;
use super::runtime::{interrupted, runtime};
use super::{Exit, FAILED, LabArgs, UNABLE, banner, find};
use crate::scenario::file::Mode;
use crate::scenario::run::{Keep, Lab, LabError, Proxy, RunOptions};
use crate::scenario::{PATIENCE, Scenario};

#[derive(Args)]
pub(super) struct UpArgs {
    /// Scenario file, or name under scenarios/; its steps are not run.
    file: PathBuf,
    /// What other commands call this lab [default: the scenario's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The mode of the proxies [default: the first one of the scenario's].
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<ModeArg>,
    #[command(flatten)]
    lab: LabArgs,
}

pub(super) fn up(args: &UpArgs) -> Result<u8, Exit> {
    let mut scenarios = find::load_all(std::slice::from_ref(&args.file), args.lab.seed.one()?)?;
    let scenario = scenarios.remove(0);
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    let mode = mode(args, &scenario, &proxy)?;
    find::tools()?;
    // Only the outer process sees the user's other labs.
    let name = sandbox::message().map_or_else(|| new_name(args.name.as_deref(), &scenario.name), Ok)?;
    let _inside = sandbox::enter_with_message(Some(&name)).map_err(|error| Exit::unable(error.to_string()))?;
    let options = RunOptions {
        proxy,
        mode,
        variant: scenario.variant.unwrap_or(args.lab.iptables_variant.into()),
        source: args.lab.source.into(),
        control_plane: None,
        patience: PATIENCE,
        keep_going: false,
        measure: None,
        machine: None,
        breaks: Vec::new(),
        evidence: Keep::Nothing,
        audit: false,
    };
    runtime()?.block_on(async {
        tokio::select! {
            standing = stand(name, &scenario, &options) => standing,
            () = interrupted() => Ok(0),
        }
    })
}

/// The mode that is asked for, or the scenario's first.
fn mode(args: &UpArgs, scenario: &Scenario, proxy: &Proxy) -> Result<Mode, Exit> {
    let asked = args.mode.map(Mode::from);
    let found = scenario.modes.iter().copied().find(|mode| asked.is_none_or(|asked| asked == *mode));
    let mode = found.ok_or_else(|| {
        let modes: Vec<String> = scenario.modes.iter().map(Mode::to_string).collect();
        Exit::usage(format!("--mode: {} is for {}", scenario.name, modes.join(", ")))
    })?;
    let lacking = super::place::lacking(&[super::jobs::Job { scenario, mode, foreign: proxy.is_foreign() }])?;
    match lacking {
        None => Ok(mode),
        Some(because) => Err(Exit::unable(format!("{} cannot be up here{because}", scenario.name))),
    }
}

async fn stand(name: String, scenario: &Scenario, options: &RunOptions) -> Result<u8, Exit> {
    let unable = |error: LabError| {
        let status = if error.is_of_this_machine() { UNABLE } else { FAILED };
        Exit { status, message: error.to_string() }
    };
    let lab = Lab::start(scenario, options).await.map_err(unable)?;
    let about = About { name, scenario: scenario.path.display().to_string(), mode: options.mode.to_string() };
    let live = lab.open().map_err(unable)?;
    let announced = labs::announce(&about);
    announced.map_err(|error| Exit::unable(format!("cannot say that the lab is up: {error}")))?;
    print!("{}", banner::text(&lab, &about));
    Err(unable(live.serve(&|trouble| eprintln!("svclab: {trouble}")).await))
}
