//! Collects a [`Snapshot`] of the program's network namespace. Lists unreadable parts. Changes nothing on the node,
//! lists no connections, and keeps only the fields of objects that a service proxy reads.

mod api;
mod bpf;
mod cluster;
mod conntrack;
mod files;
mod fingerprint;
mod generation;
mod ipvs;
mod netlink;
mod nft;
mod node;
mod objects;
mod proxy;
mod rules;
mod size;
mod sockets;
mod sysctls;
mod ticks;
mod tool;
pub(crate) mod trim;
mod versions;
mod watch;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use tokio::time::{Instant, timeout_at};

use crate::archive::entries::ArchivePart;
use crate::{Snapshot, Unread};

use cluster::LocalProxy;
pub use objects::RecentChanges;
pub use watch::{NodeMark, NodeWatch};

/// Settings of [`collect`].
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// The kubeconfig. Default: the first of `$KUBECONFIG`, `~/.kube/config`, the proxy's kubeconfig, the pod's service
    /// account.
    pub kubeconfig: Option<PathBuf>,
    /// The name of the Node object. Default: `$NODE_NAME`, the proxy's `--hostname-override`, or the Node with this
    /// machine's host name or address.
    pub node_name: Option<String>,
    /// The proxy's configuration file. Default: its `/configz`, then its file or flags, then its ConfigMap.
    pub proxy_config: Option<PathBuf>,
    /// The time limit of each tool.
    pub tool_deadline: Duration,
    /// The time limit of the whole collection.
    pub deadline: Duration,
    /// The size limit of all files together, in bytes; a part that does not fit is left out.
    pub max_size: u64,
}

impl Default for CollectOptions {
    fn default() -> Self {
        CollectOptions {
            kubeconfig: None,
            node_name: None,
            proxy_config: None,
            tool_deadline: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            max_size: 256 << 20,
        }
    }
}

/// Collects the network namespace of the runtime's threads, which must share one. Needs timers and I/O.
pub async fn collect(options: &CollectOptions) -> Snapshot {
    collect_from(options, ObjectSource::List, None).await
}

/// Where the API's objects are from.
#[derive(Clone, Copy)]
enum ObjectSource<'a> {
    List,
    Watch(&'a objects::ObjectWatch),
}

/// `proxy` has been read already.
async fn collect_from(options: &CollectOptions, source: ObjectSource<'_>, proxy: Option<LocalProxy>) -> Snapshot {
    let mut snapshot = Snapshot { taken: now(), ..Snapshot::default() };
    let end = Instant::now() + options.deadline;
    // Shorter than the total, so that a hung tool does not lose the others' output.
    let limits = tool::Limits { deadline: options.tool_deadline.min(options.deadline / 2), largest: options.max_size };
    (snapshot.host, snapshot.kernel) = node::host_and_kernel();

    let (rules, versions, network, programs) = tokio::join!(
        within(end, "rules", rules::read(limits)),
        within(end, "versions.json", versions::read(limits)),
        within(end, "network.json", netlink::read()),
        within(end, "bpf.json", bpf::read()),
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
    match programs {
        Ok((programs, unread)) => {
            snapshot.programs = programs;
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
    let proxy = match proxy {
        Some(proxy) => proxy,
        None => LocalProxy::read(options, end).await,
    };
    cluster::read(options, source, proxy, end, &mut snapshot).await;
    size::cut(&mut snapshot, options.max_size);
    snapshot
}

#[derive(Debug, Default)]
struct Findings {
    texts: Vec<(ArchivePart, String, Option<String>)>,
    unread: Vec<Unread>,
}

impl Findings {
    fn unread(unread: Unread) -> Findings {
        Findings { unread: vec![unread], ..Findings::default() }
    }

    fn put_into(self, snapshot: &mut Snapshot) {
        for (part, text, source) in self.texts {
            let place = match part {
                ArchivePart::NftV4 => &mut snapshot.nft_v4,
                ArchivePart::NftV6 => &mut snapshot.nft_v6,
                ArchivePart::LegacyV4 => &mut snapshot.legacy_v4,
                ArchivePart::LegacyV6 => &mut snapshot.legacy_v6,
                ArchivePart::Nft => &mut snapshot.nft,
                ArchivePart::Sets => &mut snapshot.sets,
                ArchivePart::Servers => &mut snapshot.servers,
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

fn unread(what: &str, why: impl Display) -> Unread {
    Unread { what: what.to_owned(), why: why.to_string().lines().next().unwrap_or_default().trim().to_owned() }
}

/// Runs `work` on another thread: reading from a mount may hang.
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
