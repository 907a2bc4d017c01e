//! The benchmarks' own flags, besides criterion's.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

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
}

impl BenchOptions {
    pub fn take(arguments: impl IntoIterator<Item = OsString>) -> Result<(BenchOptions, Vec<OsString>)> {
        let (mut options, mut rest) = (BenchOptions::default(), Vec::new());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--quick") => options.quick = true,
                Some("--update") => options.update = true,
                Some("--large") => options.large = true,
                Some("--proxy") => {
                    let file = arguments.next().context("--proxy needs a FILE, such as lab/proxies/kube-proxy.yaml")?;
                    options.proxies.push(file.into());
                }
                Some(text) if text.starts_with("--proxy=") => options.proxies.push(text["--proxy=".len()..].into()),
                _ => rest.push(argument),
            }
        }
        if options.update && !options.quick {
            bail!("--update goes with --quick: it writes counts, not times");
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
        assert!(take("--proxy").unwrap_err().to_string().contains("needs a FILE"));
        assert!(take("--update").is_err() && take("--quick --update").is_ok());
    }
}
