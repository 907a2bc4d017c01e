//! The daemon: puts the pieces together and runs them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::config_watch::ConfigWatch;
use super::settings::{Origin, Resolved};
use crate::config::{Config, Variant};
use crate::daemon::Daemon;
use crate::health::{HealthState, HealthzServer, ServiceHealthServers};
use crate::kernel::conntrack::Netlink;
use crate::kernel::iptables::{Commands, Iptables, Table};
use crate::kernel::watch::Watch;
use crate::kernel::{limits, sysctl};
use crate::mode::iptables::family::FamilyProxy;
use crate::model::Family;
use crate::source::{KubernetesSource, ManifestSource, Source, Timing};

/// How soon a port that could not be bound is tried again (upstream's pause).
const BIND_RETRY: Duration = Duration::from_secs(5);

/// Runs until it is told to stop.
pub fn run(resolved: Resolved, origin: &Origin) -> anyhow::Result<()> {
    let Resolved { mut config, file, .. } = resolved;
    prepare_kernel(&mut config)?;
    if let Some(refused) = limits::set_oom_score_adj(config.oom_score_adj) {
        warn!("{refused}");
    }
    let _watch = file.as_ref().map(ConfigWatch::start).transpose().unwrap_or_else(|error| {
        warn!(%error, "cannot watch the configuration file: a change of it will not be told");
        None
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match origin {
            Origin::Manifests(directory) => serve(ManifestSource::open(directory)?, config).await,
            Origin::Kubernetes(access) => {
                let source = KubernetesSource::start(access.clone(), &config.node_name, &Timing::default());
                serve(source, config).await
            }
        }
    })
}

/// What needs more rights than proxying does, and is done once.
pub fn prepare(resolved: Resolved) -> anyhow::Result<()> {
    let mut config = resolved.config;
    prepare_kernel(&mut config)
}

async fn serve<S: Source>(source: S, config: Config) -> anyhow::Result<()> {
    let (families, watch) = families(&config)?;
    let health = HealthState::new(config.sync_period);
    let _server = match config.healthz_bind_address {
        Some(address) => Some(serve_healthz(address, &health, config.bind_address_hard_fail)?),
        None => None,
    };
    let service_health = ServiceHealthServers::on_every_address(health.clone());
    Daemon { source, families, watch, conntrack: Netlink, health, service_health, config }.run().await?;
    Ok(())
}

/// Serves `/healthz` in a task that ends with what is returned. A port that is taken is tried again and again, unless
/// that is to be fatal.
fn serve_healthz(address: SocketAddr, health: &HealthState, fatal: bool) -> anyhow::Result<JoinSet<()>> {
    let first = HealthzServer::bind(address, health.clone());
    let health = health.clone();
    let mut task = JoinSet::new();
    match first {
        Ok(server) => task.spawn(hold(server)),
        Err(error) if fatal => return Err(error.into()),
        Err(error) => {
            warn!(%error, "trying again every {BIND_RETRY:?}");
            task.spawn(async move {
                loop {
                    tokio::time::sleep(BIND_RETRY).await;
                    if let Ok(server) = HealthzServer::bind(address, health.clone()) {
                        info!(%address, "listening for /healthz");
                        hold(server).await;
                    }
                }
            })
        }
    };
    Ok(task)
}

async fn hold(server: HealthzServer) {
    std::future::pending::<()>().await;
    drop(server);
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
            // As upstream: a node without IPv6 is no reason not to proxy IPv4, nor the other way round.
            Err(error) if family != config.primary_family => warn!(%family, %error, "this family is not proxied"),
            Err(error) => return Err(error).with_context(|| format!("cannot proxy {family}, the primary family")),
        }
    }
    let families = usable.iter().map(FamilyProxy::family).collect();
    let watch = if nft { Watch::nft().context("cannot watch the packet filter")? } else { Watch::legacy(families) };
    Ok((usable, watch))
}

fn prepare_kernel(config: &mut Config) -> anyhow::Result<()> {
    for refused in limits::set_conntrack(&config.conntrack) {
        warn!("{refused}");
    }
    if config.tcp_be_liberal {
        sysctl::ensure(sysctl::TCP_BE_LIBERAL, "1").context("conntrack.tcpBeLiberal (--conntrack-tcp-be-liberal)")?;
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
