//! The daemon: puts the pieces together and runs them.

use std::io::IsTerminal;

use anyhow::Context;
use tracing::warn;
use tracing_subscriber::EnvFilter;

use super::settings::Settings;
use crate::config::{Config, Variant};
use crate::daemon::Daemon;
use crate::health::{HealthState, HealthzServer, ServiceHealthServers};
use crate::kernel::conntrack::Netlink;
use crate::kernel::iptables::{Commands, Iptables, Table};
use crate::kernel::sysctl;
use crate::kernel::watch::Watch;
use crate::mode::iptables::family::FamilyProxy;
use crate::model::Family;
use crate::source::ManifestSource;

/// Messages go to standard error; `RUST_LOG` changes the level.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A second call, in tests, finds the first one's subscriber in place.
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let format = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(colour);
    let _ = format.with_env_filter(filter).try_init();
}

/// Runs until it is told to stop.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    log_to_stderr();
    let mut config = settings.config()?;
    let manifests = settings.manifests()?;
    let healthz = settings.healthz()?;
    prepare_kernel(&mut config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (families, watch) = families(&config)?;
        let health = HealthState::new(config.sync_period);
        let _server = match healthz {
            Some(address) => Some(HealthzServer::bind(address, health.clone())?),
            None => None,
        };
        let source = ManifestSource::open(manifests)?;
        let service_health = ServiceHealthServers::on_every_address(health.clone());
        Daemon { source, families, watch, conntrack: Netlink, health, service_health, config }.run().await?;
        Ok(())
    })
}

/// One proxy per family whose tables can be used, and the watch over them.
fn families(config: &Config) -> anyhow::Result<(Vec<FamilyProxy<Commands>>, Watch)> {
    let mut usable = Vec::new();
    let mut nft = config.variant == Variant::Nft;
    for family in Family::ALL {
        let commands = Commands::find(family, config.variant).and_then(|mut commands| {
            nft = commands.is_nft()?;
            // A dump is the cheapest question that needs the rights and the kernel support which the work needs.
            commands.save(Table::Nat)?;
            Ok(commands)
        });
        match commands {
            Ok(commands) => usable.push(FamilyProxy::new(config.clone(), family, commands)),
            // As upstream: a node without IPv6 is no reason not to proxy IPv4.
            Err(error) if family == Family::V6 => warn!(%family, %error, "this family is not proxied"),
            Err(error) => return Err(error).context("cannot proxy IPv4"),
        }
    }
    let families = usable.iter().map(FamilyProxy::family).collect();
    let watch = if nft { Watch::nft().context("cannot watch the packet filter")? } else { Watch::legacy(families) };
    Ok((usable, watch))
}

fn prepare_kernel(config: &mut Config) -> anyhow::Result<()> {
    if config.tcp_be_liberal {
        sysctl::ensure(sysctl::TCP_BE_LIBERAL, "1").context("--conntrack-tcp-be-liberal")?;
    } else if sysctl::read(sysctl::TCP_BE_LIBERAL).is_ok_and(|value| value != "0") {
        // Somebody has set it already: dropping INVALID packets would take back what it allows.
        config.tcp_be_liberal = true;
    }
    if config.localhost_node_ports
        && let Err(error) = sysctl::ensure(sysctl::ROUTE_LOCALNET, "1")
    {
        warn!(%error, "node ports on 127.0.0.1 will not work; --iptables-localhost-nodeports=false does without");
        config.localhost_node_ports = false;
    }
    Ok(())
}
