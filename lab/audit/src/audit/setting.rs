//! Kernel settings that differ from those of a node with a service proxy. Each is tried: a fault that the right value
//! mends is the setting's.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use svclab_oracle::Mode;
use svclab_sim::cluster::NodeState;
use svclab_snapshot::Snapshot;

use crate::machines::{Around, Machines};

/// Wrong values with the right one. `*`: every interface, `all` and `default`.
const WRONG: [(&str, &str, &str, Option<Mode>); 7] = [
    ("net.ipv4.ip_forward", "0", "1", None),
    ("net.ipv4.conf.*.forwarding", "0", "1", None),
    ("net.ipv6.conf.*.forwarding", "0", "1", None),
    ("net.ipv4.conf.*.rp_filter", "1", "0", None),
    ("net.bridge.bridge-nf-call-iptables", "0", "1", None),
    ("net.bridge.bridge-nf-call-ip6tables", "0", "1", None),
    ("net.ipv4.vs.conntrack", "0", "1", Some(Mode::Ipvs)),
];

/// The inputs of [`Machines::build`].
pub(super) struct NodeParts<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) state: &'a NodeState,
    pub(super) around: &'a Around,
}

pub(super) struct Settings<'a> {
    parts: NodeParts<'a>,
    wrong: Vec<WrongSetting>,
}

struct WrongSetting {
    /// `net.ipv4.ip_forward = 0`.
    text: String,
    right: BTreeMap<String, String>,
    /// The machines with the right value, built at the first fault; `None`: they cannot be built.
    mended: OnceLock<Option<Machines>>,
}

impl<'a> Settings<'a> {
    pub(super) fn of(parts: NodeParts<'a>, mode: Mode) -> Settings<'a> {
        let wanted = WRONG.iter().filter(|(.., only)| only.is_none_or(|only| only == mode));
        let found =
            wanted.filter_map(|(name, wrong, right, _)| wrong_setting(&parts.snapshot.sysctls, name, wrong, right));
        let wrong = found.collect();
        Settings { parts, wrong }
    }

    /// Returns the setting whose right value mends what `is_right` asks of.
    pub(super) fn culprit(&self, is_right: impl Fn(&Machines) -> bool) -> Option<&str> {
        let mended = |setting: &&WrongSetting| {
            let machines = setting.mended.get_or_init(|| self.with(&setting.right));
            machines.as_ref().is_some_and(&is_right)
        };
        self.wrong.iter().find(mended).map(|setting| setting.text.as_str())
    }

    fn with(&self, right: &BTreeMap<String, String>) -> Option<Machines> {
        let mut sysctls = self.parts.snapshot.sysctls.clone();
        sysctls.extend(right.clone());
        // Objects and rules are in the other arguments.
        let snapshot = Snapshot {
            host: self.parts.snapshot.host.clone(),
            node_name: self.parts.snapshot.node_name.clone(),
            network: self.parts.snapshot.network.clone(),
            sets: self.parts.snapshot.sets.clone(),
            sysctls,
            ..Snapshot::default()
        };
        Machines::build(&snapshot, self.parts.state, self.parts.around).ok()
    }
}

fn wrong_setting(sysctls: &BTreeMap<String, String>, name: &str, wrong: &str, right: &str) -> Option<WrongSetting> {
    let is_of = |key: &str| match name.split_once('*') {
        Some((before, after)) => key.starts_with(before) && key.ends_with(after),
        None => key == name,
    };
    let found: Vec<&str> = sysctls
        .iter()
        .filter(|(key, value)| is_of(key) && value.trim() == wrong)
        .map(|(key, _)| key.as_str())
        .collect();
    let first = found.iter().find(|key| key.contains(".all.")).or(found.first())?;
    let mut mended: BTreeMap<String, String> = found.iter().map(|key| ((*key).to_owned(), right.to_owned())).collect();
    if name == "net.ipv4.ip_forward" {
        // Writing it sets every interface's (inet_forward_change, net/ipv4/devinet.c).
        let of_interfaces =
            sysctls.keys().filter(|key| key.starts_with("net.ipv4.conf.") && key.ends_with(".forwarding"));
        mended.extend(of_interfaces.map(|key| (key.clone(), right.to_owned())));
    }
    let more = match found.len() {
        1 => String::new(),
        _ if first.contains(".all.") => String::new(),
        count => format!(" (and of {} more)", count - 1),
    };
    Some(WrongSetting { text: format!("{first} = {wrong}{more}"), right: mended, mended: OnceLock::new() })
}
