//! Collects a node's archive, connections and proxy log.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use svclab_cluster::traffic::probe::ClusterHost;

use super::super::lab::{HANGS_AFTER, KernelLab};
use super::super::proxies::configuration;
use super::{COLLECT, LIMIT, archive_inside};
use crate::bundle;

/// The kernel's file of conntrack entries, for nodes without the program `conntrack`.
const CONNECTIONS: &str = "/proc/thread-self/net/nf_conntrack";

impl KernelLab {
    pub(super) async fn keep_node(&self, node: &str, folder: Option<&Path>) -> Vec<String> {
        let work = async {
            let mut not_kept = Vec::new();
            let mut told = |what: &str, done: Result<(), String>| {
                not_kept.extend(done.err().map(|why| format!("{what} of {node}: {why}")));
            };
            if let Some(folder) = folder {
                // Reads conntrack before tools open connections.
                let written = match self.connections_of(node).await {
                    Ok(text) => write(&folder.join(format!("conntrack-{node}.txt")), &text),
                    Err(why) => Err(why),
                };
                told("the connections", written);
                let log = folder.join(format!("proxy-{node}.log"));
                told("the log", write(&log, &self.proxies.log_of(node)));
            }
            let collected = self.collect(node).await;
            let copied = folder.map_or(Ok(()), |folder| copy(node, folder));
            told("the archive", collected.map(drop).and(copied));
            not_kept
        };
        let late = || vec![format!("some of {node}: not within {} s", LIMIT.as_secs())];
        tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| late())
    }

    pub(in crate::scenario::run) async fn collect(&self, node: &str) -> Result<PathBuf, String> {
        let archive = archive_inside(node);
        let made = std::fs::create_dir_all(archive.parent().unwrap_or(Path::new("/")));
        made.map_err(words)?;
        let _ = std::fs::remove_file(&archive);
        let shown = |path: &Path| path.display().to_string();
        let own = std::env::current_exe().map_err(words)?;
        let mut argv = vec![shown(&own), "collect".to_owned(), shown(&archive)];
        let mut flag = |name: &str, value: String| argv.extend([format!("--{name}"), value]);
        flag("node-name", node.to_owned());
        flag("proxy-config", shown(&configuration(node)));
        flag("deadline", COLLECT.as_secs().to_string());
        flag("tool-deadline", HANGS_AFTER.as_secs().to_string());
        if let Some(kubeconfig) = self.kubeconfig(node) {
            flag("kubeconfig", shown(&kubeconfig));
        }
        let output = self.exec_within(&ClusterHost::Node(node.to_owned()), &argv, LIMIT).await.map_err(words)?;
        let last = || output.stderr.lines().last().unwrap_or_default().to_owned();
        if output.success() { Ok(archive) } else { Err(last()) }
    }

    async fn connections_of(&self, node: &str) -> Result<String, String> {
        let place = ClusterHost::Node(node.to_owned());
        let mut text = String::new();
        for family in ["ipv4", "ipv6"] {
            let argv = ["conntrack", "-L", "-f", family].map(str::to_owned);
            match self.exec_within(&place, &argv, HANGS_AFTER).await {
                Ok(output) if output.success() => text.push_str(&output.stdout),
                _ => {
                    let read = self.cluster.run(&place, || std::fs::read_to_string(CONNECTIONS)).await;
                    return read.map_err(words)?.map_err(|error| format!("no conntrack, and {CONNECTIONS}: {error}"));
                }
            }
        }
        Ok(text)
    }
}

fn copy(node: &str, folder: &Path) -> Result<(), String> {
    std::fs::copy(archive_inside(node), folder.join(bundle::archive(node))).map(|_| ()).map_err(words)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(words)
}

fn words(error: impl Display) -> String {
    error.to_string()
}
