//! `svclab up`

use std::path::PathBuf;

use clap::Args;
use svclab_netns::sandbox;

use super::runtime::{interrupted, runtime};
use super::{Exit, FAILED, LabArgs, UNABLE, find};
use crate::scenario::run::{Keep, Lab, LabError, RunOptions};
use crate::scenario::{PATIENCE, Scenario};

#[derive(Args)]
pub(super) struct UpArgs {
    /// Scenario file, or name under scenarios/; its steps are not run.
    file: PathBuf,
    #[command(flatten)]
    lab: LabArgs,
}

pub(super) fn up(args: &UpArgs) -> Result<u8, Exit> {
    let mut scenarios = find::load_all(std::slice::from_ref(&args.file), args.lab.seed.one()?)?;
    let scenario = scenarios.remove(0);
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source.into())?;
    find::tools()?;
    let _inside = sandbox::enter().map_err(|error| Exit::unable(error.to_string()))?;
    let mode = scenario.modes.first().copied().ok_or_else(|| Exit::usage("the scenario is for no mode"))?;
    let variant = args.lab.iptables_variant.into();
    let source = args.lab.source.into();
    let options = RunOptions {
        proxy,
        mode,
        variant,
        source,
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
            standing = stand(&scenario, &options) => standing,
            () = interrupted() => Ok(0),
        }
    })
}

async fn stand(scenario: &Scenario, options: &RunOptions) -> Result<u8, Exit> {
    let lab = Lab::start(scenario, options).await.map_err(|error| {
        let status = if matches!(error, LabError::Cluster(_)) { UNABLE } else { FAILED };
        Exit { status, message: error.to_string() }
    })?;
    eprintln!("{} is up; ctrl-c ends it. From another terminal:", scenario.name);
    for place in lab.cluster().places() {
        println!("svclab exec {place} -- bash");
    }
    if let Some(kubeconfig) = lab.cluster().spec().nodes.first().and_then(|node| lab.kubeconfig(&node.name)) {
        eprintln!("the Kubernetes API, on every node: kubectl --kubeconfig {} get services", kubeconfig.display());
    }
    if let Some(line) = lab.cluster().places().first().and_then(|place| lab.cluster().enter_line(place).ok()) {
        eprintln!("or without svclab, for the first of them: {line}");
    }
    std::future::pending().await
}
