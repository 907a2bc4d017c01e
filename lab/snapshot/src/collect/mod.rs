//! Gathers a [`Snapshot`] of the node, or rather of the network namespace, that the program runs in.
//!
//! Nothing fails as a whole: what cannot be read is listed. Nothing on the node is changed, no single connection is looked at, and of
//! the cluster's objects only what a service proxy works from is kept.

mod api;
mod cluster;
mod conntrack;
mod files;
mod ipvs;
mod netlink;
mod node;
mod proxy;
mod rules;
mod size;
mod sockets;
mod sysctls;
mod ticks;
mod tool;
pub(crate) mod trim;
mod versions;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use tokio::time::{Instant, timeout_at};

use crate::archive::entries::Part;
use crate::{Snapshot, Unread};

/// How a node is looked at.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubeconfig; without it `$KUBECONFIG`, `~/.kube/config`, the one that the proxy's configuration names, and the service
    /// account of the pod that the program runs in are looked for.
    pub kubeconfig: Option<PathBuf>,
    /// The name of the node's Node object; without it `$NODE_NAME`, the proxy's `--hostname-override`, and the Node that has this
    /// machine's host name or one of its addresses.
    pub node_name: Option<String>,
    /// The proxy's configuration; without it the proxy itself is asked for it, and then its file and its ConfigMap are looked for.
    pub proxy_config: Option<PathBuf>,
    /// How long each tool may take.
    pub tool_deadline: Duration,
    /// How long all of it may take.
    pub deadline: Duration,
    /// Bytes that all files together may have; what is over is left out whole.
    pub max_size: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kubeconfig: None,
            node_name: None,
            proxy_config: None,
            tool_deadline: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            max_size: 256 << 20,
        }
    }
}

/// Gathers. Call it on a runtime with timers and input/output; the network namespace that is looked at is that of the
/// runtime's threads, which must all be in one.
pub async fn collect(options: &Options) -> Snapshot {
    let mut snapshot = Snapshot { taken: now(), ..Snapshot::default() };
    let end = Instant::now() + options.deadline;
    // A tool ends before all of it does: what the others have printed is kept.
    let limits = tool::Limits { deadline: options.tool_deadline.min(options.deadline / 2), largest: options.max_size };
    (snapshot.host, snapshot.kernel) = node::host_and_kernel();

    let (rules, versions, network) = tokio::join!(
        within(end, "rules", rules::read(limits)),
        within(end, "versions.json", versions::read(limits)),
        within(end, "network.json", netlink::read()),
    );
    rules.unwrap_or_else(Findings::unread).put_into(&mut snapshot);
    match versions {
        Ok(versions) => snapshot.versions = versions,
        Err(unread) => snapshot.unread.push(unread),
    }
    match network {
        Ok((network, unread)) => {
            snapshot.network = network;
            snapshot.unread.extend(unread);
        }
        Err(unread) => snapshot.unread.push(unread),
    }
    let interfaces = snapshot.network.iter().flat_map(|network| &network.links).map(|link| link.name.as_str());
    snapshot.sysctls = sysctls::read(interfaces);
    match sockets::read() {
        Ok(sockets) => snapshot.sockets = Some(sockets),
        Err(unread) => snapshot.unread.push(unread),
    }
    match conntrack::read() {
        Ok(figures) => snapshot.conntrack = figures,
        Err(unread) => snapshot.unread.push(unread),
    }
    cluster::read(options, end, &mut snapshot).await;
    size::cut(&mut snapshot, options.max_size);
    snapshot
}

/// Texts that were read, and what could not be.
#[derive(Debug, Default)]
struct Findings {
    texts: Vec<(Part, String, Option<String>)>,
    unread: Vec<Unread>,
}

impl Findings {
    fn unread(unread: Unread) -> Findings {
        Findings { unread: vec![unread], ..Findings::default() }
    }

    fn put_into(self, snapshot: &mut Snapshot) {
        for (part, text, source) in self.texts {
            let place = match part {
                Part::NftV4 => &mut snapshot.nft_v4,
                Part::NftV6 => &mut snapshot.nft_v6,
                Part::LegacyV4 => &mut snapshot.legacy_v4,
                Part::LegacyV6 => &mut snapshot.legacy_v6,
                Part::Nft => &mut snapshot.nft,
                Part::Sets => &mut snapshot.sets,
                Part::Servers => &mut snapshot.servers,
                _ => continue,
            };
            *place = Some(text);
            if let Some(source) = source {
                snapshot.sources.insert(part.path().to_owned(), source);
            }
        }
        snapshot.unread.extend(self.unread);
    }
}

/// For `map_err`, and everywhere else.
fn unread(what: &str, why: impl Display) -> Unread {
    Unread { what: what.to_owned(), why: why.to_string().lines().next().unwrap_or_default().trim().to_owned() }
}

/// For files that may be on a mount that does not answer: only on another thread can it be waited for with a deadline.
async fn elsewhere<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Unread> {
    tokio::task::spawn_blocking(work).await.map_err(|error| unread(what, error))
}

async fn within<T>(end: Instant, what: &str, work: impl Future<Output = T>) -> Result<T, Unread> {
    timeout_at(end, work)
        .await
        .map_err(|_| unread(what, "not read within the time that all of it may take (--deadline)"))
}

fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}
