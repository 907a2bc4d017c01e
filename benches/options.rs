//! The flags that are not criterion's.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// What was asked for on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// `--quick`: count, and compare with the committed counts; measure no time. (Criterion's own flag of that name is not to
    /// be had.)
    pub quick: bool,
    /// `--update`, with `--quick`: write the committed counts anew.
    pub update: bool,
    /// `--large`: a cluster of 20,000 services, too; in nftables mode 44,000 of 2 endpoints and 5,000 of 50 as well.
    pub large: bool,
    /// `--proxy FILE`: measure only what a client sees, of this proxy and of the one that FILE describes (as for the lab's
    /// `--proxy FILE`).
    pub proxies: Vec<PathBuf>,
}

impl Options {
    /// Takes these flags out of a command line; the rest is criterion's.
    ///
    /// # Errors
    /// When a flag lacks its value, or makes no sense alone.
    pub fn take(arguments: impl IntoIterator<Item = OsString>) -> Result<(Options, Vec<OsString>)> {
        let (mut options, mut rest) = (Options::default(), Vec::new());
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

    fn take(line: &str) -> Result<(Options, Vec<OsString>)> {
        Options::take(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn criterions_flags_are_left_to_it() {
        let (options, rest) =
            take("--large first-sync --proxy a.yaml --proxy=b.yaml --save-baseline x --bench").unwrap();
        let proxies = vec!["a.yaml".into(), "b.yaml".into()];
        assert_eq!(options, Options { large: true, proxies, ..Options::default() });
        assert_eq!(rest, ["first-sync", "--save-baseline", "x", "--bench"]);
        assert!(take("--proxy").unwrap_err().to_string().contains("needs a FILE"));
        assert!(take("--update").is_err() && take("--quick --update").is_ok());
    }
}
