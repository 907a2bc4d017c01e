mod documents;

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use tracing::warn;

use self::documents::Documents;
use super::run;
use super::settings::{ObjectOrigin, Settings};
use crate::config::{Config, Mode};
use crate::health::is_eligible;
use crate::metrics::Requests;
use crate::model::{Batch, Change, Family};
use crate::plan::node::names_node_port_addresses;
use crate::source::{read_api, read_directory};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyFlag {
    Ipv4,
    Ipv6,
}

#[derive(Debug, Args)]
pub struct Render {
    /// Mode to render; default: the configuration's, or iptables
    #[arg(long)]
    mode: Option<Mode>,
    /// Only this address family
    #[arg(long, value_enum)]
    ip_family: Option<FamilyFlag>,
    /// Userspace mode: some interfaces have no address, such as pods' own links; nothing is redirected there
    #[arg(long)]
    interfaces_without_address: bool,
    /// A further address of this node, besides those of its Node object, for node ports in IPVS mode or by
    /// nodePortAddresses. May be repeated
    #[arg(long, value_name = "IP")]
    local_address: Vec<IpAddr>,
    /// Write one file per family and command (such as ipv4.rules for iptables-restore) into this directory, and print
    /// the names of the files
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Render {
    /// Faults in manifests go to standard error and make the exit status 1.
    pub fn run(&self) -> anyhow::Result<()> {
        let rendered = self.render()?;
        let text = match &self.output {
            None => rendered.text(),
            Some(directory) => rendered.write(directory)?,
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        match rendered.faults {
            0 => Ok(()),
            n => anyhow::bail!("{n} fault(s) in the manifests, named above; the rest is rendered"),
        }
    }

    fn render(&self) -> anyhow::Result<Rendered> {
        #[cfg(debug_assertions)]
        let _active = self.settings.mutant()?.map(crate::mutants::activate_for_thread);
        let resolved = self.settings.resolve_in(self.mode)?;
        super::logging::start_complete(&resolved.configuration.logging);
        for warning in &resolved.warnings {
            warn!("{warning}");
        }
        // With --manifests the connection of a configuration file is not used.
        let origin = match &self.settings.manifests {
            Some(directory) => ObjectOrigin::Manifests(directory.clone()),
            None => self.settings.origin(&resolved)?,
        };
        let config = resolved.config;
        let mode = config.mode;
        if self.interfaces_without_address && mode != Mode::Userspace {
            anyhow::bail!("--interfaces-without-address says something about userspace mode, and the mode is {mode}");
        }
        let families = match self.ip_family {
            None => Family::ALL.to_vec(),
            Some(FamilyFlag::Ipv4) => vec![Family::V4],
            Some(FamilyFlag::Ipv6) => vec![Family::V6],
        };
        let by_local_addresses = families.iter().any(|family| by_local_addresses(&config, *family));
        if !self.local_address.is_empty() && !by_local_addresses {
            anyhow::bail!(
                "--local-address says where node ports are, and in {mode} mode with these nodePortAddresses (--nodeport-addresses) \
                 they are on every local address"
            );
        }
        let (batch, faults) = objects(&origin, &config)?;
        if by_local_addresses && self.local_address.is_empty() && !has_node(&batch, &config.node_name) {
            let name = &config.node_name;
            let place = if self.settings.manifests.is_some() { "the manifests" } else { "the cluster" };
            warn!(
                "there is no Node {name} in {place}, so its addresses are not known and node ports are left out: add it, give its \
                 name by --hostname-override, or its addresses by --local-address"
            );
        }
        let each = families.into_iter().map(|family| (family, self.documents(&config, family, &batch)));
        Ok(Rendered { families: each.collect(), faults })
    }

    fn documents(&self, config: &Config, family: Family, batch: &Batch) -> Documents {
        let documents = match config.mode {
            Mode::Ipvs => documents::ipvs(config, family, batch, &self.local_address),
            Mode::Userspace => {
                documents::userspace(config, family, batch, &self.local_address, self.interfaces_without_address)
            }
            Mode::Nftables => documents::nftables(config, family, batch, &self.local_address),
            Mode::Iptables => documents::iptables(config, family, batch, &self.local_address),
        }
        .with_tables_beside(family);
        // `/healthz` answers 200 unless the node is about to be deleted.
        if is_eligible_in(batch, &config.node_name) { documents } else { documents.with_comment("# healthz 503\n") }
    }
}

/// Returns the objects, and the number of faults in manifests.
fn objects(origin: &ObjectOrigin, config: &Config) -> anyhow::Result<(Batch, usize)> {
    match origin {
        ObjectOrigin::Manifests(directory) => {
            let reading = read_directory(directory)?;
            for line in &reading.skipped {
                tracing::info!("{line}");
            }
            for problem in reading.remarks.iter().chain(&reading.problems) {
                warn!("{problem}");
            }
            Ok((reading.batch, reading.problems.len()))
        }
        ObjectOrigin::Kubernetes(access, connection) => {
            let connector = run::connector(access, connection, &Requests::default());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let read = runtime.block_on(read_api(&connector, &run::scope(config)));
            // A plugin or file that hangs must not delay the end.
            runtime.shutdown_background();
            let batch =
                read.map_err(|sentence| anyhow::anyhow!("Kubernetes API ({}): {sentence}", access.describe()))?;
            Ok((batch, 0))
        }
    }
}

/// Whether node ports are only on some local addresses; otherwise they are on all.
fn by_local_addresses(config: &Config, family: Family) -> bool {
    config.mode == Mode::Ipvs || names_node_port_addresses(config, family)
}

fn is_eligible_in(batch: &Batch, own: &str) -> bool {
    batch.changes.iter().all(|change| match change {
        Change::Node(name, Some(node)) => name != own || is_eligible(node),
        _ => true,
    })
}

pub(super) fn has_node(batch: &Batch, wanted: &str) -> bool {
    batch.changes.iter().any(|change| matches!(change, Change::Node(name, Some(_)) if name == wanted))
}

struct Rendered {
    families: Vec<(Family, Documents)>,
    faults: usize,
}

impl Rendered {
    fn text(&self) -> String {
        self.families.iter().map(|(family, documents)| format!("# {family}\n{}", documents.text())).collect()
    }

    fn write(&self, directory: &Path) -> anyhow::Result<String> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let mut names = String::new();
        for (family, documents) in &self.families {
            for (extension, text) in documents.files() {
                let path = directory.join(format!("{}.{extension}", family.to_string().to_lowercase()));
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                names.push_str(&format!("{}\n", path.display()));
            }
        }
        Ok(names)
    }
}

/// Returns the output of `svcproxy render`, for other programs.
pub fn render_to_string(flags: impl IntoIterator<Item = String>) -> anyhow::Result<String> {
    #[derive(clap::Parser)]
    struct RenderCommandLine {
        #[command(flatten)]
        render: Render,
    }
    let flags = <RenderCommandLine as clap::Parser>::try_parse_from(std::iter::once("render".to_owned()).chain(flags))?;
    let rendered = flags.render.render()?;
    match rendered.faults {
        0 => Ok(rendered.text()),
        n => anyhow::bail!("{n} fault(s) in the manifests"),
    }
}
