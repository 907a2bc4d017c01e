//! The measured proxies: svcproxy, and those that files describe.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use svclab::scenario::run::ForeignProxy;
use svclab_cluster::process::ProcessSpec;
use svclab_netns::sandbox::WORK_DIR;

use crate::cluster::ClusterSize;
use crate::subject::AS_PROXY;

/// A mode with a variant of iptables, which proxies find by `PATH`.
pub struct ProxyVariant {
    pub name: &'static str,
    mode: &'static str,
    program: &'static str,
    /// The most endpoints in the cluster, and the reason.
    up_to: (u32, &'static str),
}

pub const VARIANTS: [ProxyVariant; 3] = [
    ProxyVariant { name: "legacy", mode: "iptables", program: "xtables-legacy-multi", up_to: (u32::MAX, "") },
    ProxyVariant {
        name: "nft",
        mode: "iptables",
        program: "xtables-nft-multi",
        up_to: (10_000, "iptables-nft-restore 1.8.9 takes over five minutes for it"),
    },
    NFTABLES,
];
pub const NFTABLES: ProxyVariant =
    ProxyVariant { name: "nftables", mode: "nftables", program: "xtables-nft-multi", up_to: (u32::MAX, "") };

impl ProxyVariant {
    /// Returns why a cluster of this size is left out. svcproxy programs nft tables by netlink and has no limit.
    pub fn too_large(&self, program: &MeasuredProxy, size: ClusterSize) -> Option<&'static str> {
        let (most, why) = self.up_to;
        (matches!(program, MeasuredProxy::Foreign(_)) && size.services * size.endpoints > most).then_some(why)
    }

    fn path(&self) -> Result<String> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        let mut places = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|place| place.join(self.program));
        let found = places.find(|file| file.is_file());
        let found = found.with_context(|| format!("there is no {} (Debian package iptables)", self.program))?;
        let directory = PathBuf::from(WORK_DIR).join(self.name);
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        for family in ["iptables", "ip6tables"] {
            for verb in ["", "-save", "-restore"] {
                let link = directory.join(format!("{family}{verb}"));
                if !link.exists() {
                    std::os::unix::fs::symlink(&found, &link).with_context(|| format!("make {}", link.display()))?;
                }
            }
        }
        Ok(format!("{}:{path}", directory.display()))
    }
}

/// A node for a proxy.
pub struct ProxyPlace<'a> {
    pub node: &'a str,
    pub kubeconfig: &'a Path,
    /// The place of the proxy's configuration. Each has its own, because a proxy may watch the whole directory.
    directory: PathBuf,
}

impl<'a> ProxyPlace<'a> {
    pub fn new(node: &'a str, kubeconfig: &'a Path) -> Result<ProxyPlace<'a>> {
        let directory = PathBuf::from(WORK_DIR).join("config").join(node);
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(ProxyPlace { node, kubeconfig, directory })
    }
}

pub enum MeasuredProxy {
    /// svcproxy, which is linked into this program.
    Own,
    Foreign(Box<ForeignProxy>),
}

impl MeasuredProxy {
    pub fn all(files: &[PathBuf]) -> Result<Vec<MeasuredProxy>> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let find = |file: &PathBuf| if file.is_file() { file.clone() } else { root.join(file) };
        let foreign = files.iter().map(|file| {
            let proxy = ForeignProxy::read(&find(file))?;
            anyhow::ensure!(proxy.init.is_none(), "{}: the benchmark runs no `init`", file.display());
            Ok(MeasuredProxy::Foreign(Box::new(proxy)))
        });
        std::iter::once(Ok(MeasuredProxy::Own)).chain(foreign).collect()
    }

    pub fn name(&self) -> &str {
        match self {
            MeasuredProxy::Own => "svcproxy",
            MeasuredProxy::Foreign(foreign) => &foreign.name,
        }
    }

    pub fn process(&self, variant: &ProxyVariant, place: &ProxyPlace<'_>) -> Result<ProcessSpec> {
        let own = configuration(place.kubeconfig, variant.mode);
        let config = match self {
            MeasuredProxy::Own => own,
            MeasuredProxy::Foreign(foreign) => foreign.configuration(&own),
        };
        let path = place.directory.join("config.yaml");
        fs::write(&path, format!("{config:#}\n")).with_context(|| format!("write {}", path.display()))?;
        let mut spec = match self {
            MeasuredProxy::Own => {
                let args = vec![format!("--config={}", path.display()), format!("--hostname-override={}", place.node)];
                let program = std::env::current_exe().context("find this program's own path")?;
                ProcessSpec { program, args, env: vec![(AS_PROXY.to_owned(), "1".to_owned())] }
            }
            MeasuredProxy::Foreign(foreign) => {
                let places = [
                    ("node", place.node.to_owned()),
                    ("kubeconfig", place.kubeconfig.display().to_string()),
                    ("config", path.display().to_string()),
                    ("mode", variant.mode.to_owned()),
                ];
                foreign.process(&foreign.command, &places)
            }
        };
        spec.env.insert(0, ("PATH".to_owned(), variant.path()?));
        Ok(spec)
    }
}

/// Returns kube-proxy's configuration with its defaults, but without a pause between syncs.
fn configuration(kubeconfig: &Path, mode: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "clusterCIDR": "10.244.0.0/16",
        "clientConnection": { "kubeconfig": kubeconfig },
        "healthzBindAddress": "127.0.0.1:10256",
        "iptables": { "minSyncPeriod": "1ms" },
        "nftables": { "minSyncPeriod": "1ms" },
    })
}
