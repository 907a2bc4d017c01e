//! The benchmarks' own flags, besides criterion's.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterSize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchOptions {
    /// `--quick`: compare counts with the committed counts; measure no time. Hides criterion's flag of that name.
    pub quick: bool,
    /// `--update`, with `--quick`: write the files of committed counts.
    pub update: bool,
    /// `--large`: also 20,000 Services; in nftables mode also 44,000 with 2 endpoints and 5,000 with 50.
    pub large: bool,
    /// `--proxy FILE`: measure only the client's view, of svcproxy and of the proxy that FILE describes, as for `svclab run --proxy`.
    pub proxies: Vec<PathBuf>,
    /// `--control-plane DIR|lab`: measure only what proxies cost an API server.
    pub control_plane: Option<ControlPlaneChoice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlaneChoice {
    /// The folder with etcd and kube-apiserver; `None` for the lab's API.
    pub directory: Option<PathBuf>,
    /// `--size SERVICESxENDPOINTS`.
    pub size: ClusterSize,
    /// `--fleet N`: svcproxy processes at once.
    pub fleet: u16,
}

impl ControlPlaneChoice {
    fn of(place: &str) -> ControlPlaneChoice {
        let directory = (place != "lab").then(|| PathBuf::from(place));
        let fleet = if directory.is_some() { 200 } else { 0 };
        ControlPlaneChoice { directory, size: ClusterSize { services: 2000, endpoints: 10 }, fleet }
    }
}

impl BenchOptions {
    pub fn take(arguments: impl IntoIterator<Item = OsString>) -> Result<(BenchOptions, Vec<OsString>)> {
        let (mut options, mut rest) = (BenchOptions::default(), Vec::new());
        let (mut size, mut fleet): (Option<ClusterSize>, Option<u16>) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = |what: &str| {
                let value = arguments.next().and_then(|value| value.into_string().ok());
                value.with_context(|| format!("{} needs {what}", argument.display()))
            };
            match argument.to_str() {
                Some("--quick") => options.quick = true,
                Some("--update") => options.update = true,
                Some("--large") => options.large = true,
                Some("--proxy") => options.proxies.push(value("a FILE, such as lab/proxies/kube-proxy.yaml")?.into()),
                Some("--control-plane") => {
                    let place = value("`lab`, or a DIR with etcd and kube-apiserver")?;
                    options.control_plane = Some(ControlPlaneChoice::of(&place));
                }
                Some("--size") => size = Some(value("SERVICESxENDPOINTS, such as 2000x10")?.parse()?),
                Some("--fleet") => {
                    let text = value("a number of proxies")?;
                    fleet = Some(text.parse().with_context(|| format!("--fleet {text}: not a number of proxies"))?);
                }
                Some(text) if text.starts_with("--proxy=") => options.proxies.push(text["--proxy=".len()..].into()),
                _ => rest.push(argument),
            }
        }
        match &mut options.control_plane {
            Some(choice) => {
                choice.size = size.unwrap_or(choice.size);
                choice.fleet = fleet.unwrap_or(choice.fleet);
                ensure!(choice.directory.is_some() || choice.fleet == 0, "--fleet needs a real control plane");
                // docs/scale.md is computed from the server's work and a fleet's.
                ensure!(!options.update || choice.fleet > 0, "--update needs a real control plane and a fleet");
            }
            None => ensure!(size.is_none() && fleet.is_none(), "--size and --fleet go with --control-plane"),
        }
        if options.update && !options.quick && options.control_plane.is_none() {
            bail!("--update goes with --quick or --control-plane");
        }
        Ok((options, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(line: &str) -> Result<(BenchOptions, Vec<OsString>)> {
        BenchOptions::take(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn other_flags_are_criterions() {
        let (options, rest) =
            take("--large first-sync --proxy a.yaml --proxy=b.yaml --save-baseline x --bench").unwrap();
        let proxies = vec!["a.yaml".into(), "b.yaml".into()];
        assert_eq!(options, BenchOptions { large: true, proxies, ..BenchOptions::default() });
        assert_eq!(rest, ["first-sync", "--save-baseline", "x", "--bench"]);
        let (options, _) = take("--control-plane /k8s --size 50x2 --fleet 7").unwrap();
        let size = ClusterSize { services: 50, endpoints: 2 };
        let choice = ControlPlaneChoice { directory: Some("/k8s".into()), size, fleet: 7 };
        assert_eq!(options.control_plane, Some(choice));
        assert_eq!(take("--control-plane lab").unwrap().0.control_plane, Some(ControlPlaneChoice::of("lab")));
        for wrong in [
            "--control-plane",
            "--size 1x1",
            "--control-plane lab --fleet 2",
            "--control-plane x --size 7",
            "--control-plane lab --update",
        ] {
            assert!(take(wrong).is_err(), "{wrong}");
        }
        assert!(take("--proxy").unwrap_err().to_string().contains("needs a FILE"));
        assert!(take("--update").is_err() && take("--quick --update").is_ok());
    }
}
