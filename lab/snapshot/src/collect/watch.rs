//! Collects one node again and again: watches the API instead of listing it, and notices cheaply whether anything
//! changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use super::cluster::LocalProxy;
use super::objects::{ObjectWatch, RecentChanges};
use super::{CollectOptions, ObjectSource, api, collect_from, fingerprint, tool, unread, within};
use crate::{Snapshot, Unread};

/// Collects the network namespace of the runtime's threads, as [`super::collect`] does.
#[derive(Debug)]
pub struct NodeWatch {
    options: CollectOptions,
    objects: ObjectWatch,
    /// What the last mark read. A proxy that hangs takes seconds not to answer.
    proxy: Mutex<Option<LocalProxy>>,
}

/// Two equal marks: nothing that an audit depends on changed in between, counters, timeouts and connections aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMark {
    node: u64,
    proxy: u64,
    objects: u64,
}

impl NodeWatch {
    /// Starts to watch the API. Needs a runtime with timers and I/O.
    #[must_use]
    pub fn start(options: CollectOptions) -> NodeWatch {
        NodeWatch { objects: ObjectWatch::start(options.clone()), options, proxy: Mutex::default() }
    }

    /// Returns the mark of the node's present state. Lists no nf_tables: every transaction changes their generation.
    pub async fn mark(&self) -> NodeMark {
        let objects = self.objects.version();
        let limits = tool::Limits { deadline: self.options.tool_deadline, largest: self.options.max_size };
        let end = Instant::now() + self.options.deadline;
        let (proxy, node) = tokio::join!(LocalProxy::read(&self.options, end), fingerprint::read(limits));
        let mut hasher = DefaultHasher::new();
        proxy.config_text().hash(&mut hasher);
        *self.last_proxy() = Some(proxy);
        NodeMark { node, proxy: hasher.finish(), objects }
    }

    /// Collects the node, with the objects of the watch and the proxy's configuration of the last mark.
    pub async fn collect(&self) -> Snapshot {
        let proxy = self.last_proxy().take();
        collect_from(&self.options, ObjectSource::Watch(&self.objects), proxy).await
    }

    fn last_proxy(&self) -> MutexGuard<'_, Option<LocalProxy>> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the snapshot's objects by a new list of the API's.
    ///
    /// # Errors
    /// The API cannot be listed.
    pub async fn list_again(&self, snapshot: &mut Snapshot) -> Result<(), Unread> {
        let (client, _) = self.objects.connection()?;
        let end = Instant::now() + self.options.deadline;
        let (objects, _) = within(end, "objects", api::objects(&client, self.options.max_size)).await??;
        snapshot.objects = Some(objects);
        Ok(())
    }

    /// Returns the Services that changed within `time`, as this program received the changes.
    #[must_use]
    pub fn changes_within(&self, time: Duration) -> RecentChanges {
        let now = Instant::now();
        self.objects.changes_since(now.checked_sub(time).unwrap_or(now))
    }

    /// Returns why there are no objects; `Ok` once they are listed.
    ///
    /// # Errors
    /// The API cannot be reached, or refuses.
    pub fn ready(&self) -> Result<(), Unread> {
        self.objects.ready()
    }

    /// Returns the API's client.
    ///
    /// # Errors
    /// There is no kubeconfig, or it cannot be used.
    pub fn client(&self) -> Result<Client, Unread> {
        self.objects.connection().map(|(client, _)| client).map_err(|error| unread("objects", error.why))
    }
}
