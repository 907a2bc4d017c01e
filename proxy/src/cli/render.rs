//! `svcproxy render`: what would be sent to the kernel, on standard output.

use std::io::Write;

use clap::{Args, ValueEnum};
use tracing::warn;

use super::settings::Settings;
use crate::config::{Config, Mode, NodeAddresses};
use crate::kernel::iptables::Table;
use crate::mode::iptables::family::FamilyProxy;
use crate::mode::iptables::{fragment, jumps, ruleset, transaction::Transaction};
use crate::model::Family;
use crate::plan::plan_node;
use crate::source::{Batch, read_directory};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyFlag {
    Ipv4,
    Ipv6,
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub struct Render {
    /// Mode to render
    #[arg(long, default_value = "iptables", value_parser = mode)]
    mode: Mode,
    /// Only this address family
    #[arg(long, value_enum)]
    ip_family: Option<FamilyFlag>,
    #[command(flatten)]
    settings: Settings,
}

fn mode(text: &str) -> Result<Mode, String> {
    let mode: Mode = text.parse()?;
    mode.available().map(|()| mode)
}

impl Render {
    /// Prints; faults in manifests go to standard error, a line each, and make the exit status 1.
    pub fn run(&self) -> anyhow::Result<()> {
        let (text, problems) = self.text()?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        match problems {
            0 => Ok(()),
            n => anyhow::bail!("{n} fault(s) in the manifests, named above; the rest is rendered"),
        }
    }

    /// The text, and the number of faults that were logged.
    fn text(&self) -> anyhow::Result<(String, usize)> {
        let resolved = self.settings.resolve()?;
        super::logging::start(&resolved.configuration.logging);
        let config = resolved.config;
        let reading = read_directory(self.settings.manifests()?)?;
        for line in &reading.skipped {
            tracing::info!("{line}");
        }
        for problem in &reading.problems {
            warn!("{problem}");
        }
        let families = match self.ip_family {
            None => Family::ALL.to_vec(),
            Some(FamilyFlag::Ipv4) => vec![Family::V4],
            Some(FamilyFlag::Ipv6) => vec![Family::V6],
        };
        let each = families
            .into_iter()
            .map(|family| format!("# {family}\n{}", iptables_text(&config, family, &reading.batch)));
        Ok((each.collect(), reading.problems.len()))
    }
}

/// What `svcproxy render` with these flags prints, for programs that do not want to run one.
///
/// # Errors
/// As the command: flags that make no sense, a directory that cannot be read, faults in manifests.
pub fn render_to_string(flags: impl IntoIterator<Item = String>) -> anyhow::Result<String> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        render: Render,
    }
    let flags = <Flags as clap::Parser>::try_parse_from(std::iter::once("render".to_owned()).chain(flags))?;
    match flags.render.text()? {
        (text, 0) => Ok(text),
        (_, n) => anyhow::bail!("{n} fault(s) in the manifests"),
    }
}

/// The whole of a family as one `iptables-restore` input. Addresses of this host play no part, so that the text is
/// the same on every machine: `nodePortAddresses` go by the Node object.
pub fn iptables_text(config: &Config, family: Family, batch: &Batch) -> String {
    let mut state = crate::state::State::new(family, config.node_name.clone());
    batch.changes.iter().for_each(|change| state.apply(change));
    let addresses = NodeAddresses { local: state.node().internal_ips.clone(), primary: Vec::new() };
    let node = plan_node(config, family, state.node(), &addresses);
    let mut proxy = FamilyProxy::new(config.clone(), family, crate::kernel::iptables::Fake::default());
    proxy.apply(&batch.changes);
    proxy.set_addresses(&addresses);
    let fragments = proxy.plans().iter().map(|plan| (plan.name.clone(), fragment::render(plan, &node))).collect();
    let mut transaction = Transaction::default();
    for (table, chains) in ruleset::assemble(&fragments, &node, true) {
        transaction.table(table).write = chains;
    }
    with_jumps(&transaction.text(), &jumps::wanted(&node).collect::<Vec<_>>())
}

/// Adds the jumps, which the running proxy puts in one by one, before the end of each table.
fn with_jumps(text: &str, jumps: &[&jumps::Jump]) -> String {
    let mut out = String::with_capacity(text.len() + 2048);
    let mut table: Option<Table> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = Table::ALL.into_iter().find(|t| t.as_str() == name);
        }
        if line == "COMMIT" {
            for jump in jumps.iter().filter(|jump| Some(jump.table) == table) {
                out.push_str(&format!("-I {} {}\n", jump.from, jump.rule));
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}
