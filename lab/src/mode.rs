use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Need {
    Ipvs,
    Dummy,
    Sctp,
    /// Delay and loss on a link (`netem`).
    Netem,
    Flowtable,
    /// A clock that can be advanced: a deterministic microVM.
    VirtualTime,
    /// Rules of hundreds of endpoints in one transaction of iptables-nft. svcproxy does not require it: it sends
    /// several transactions.
    LargeBatches,
}

impl Need {
    pub fn name(self) -> &'static str {
        match self {
            Need::Ipvs => "ipvs",
            Need::Dummy => "dummy",
            Need::Sctp => "sctp",
            Need::Netem => "netem",
            Need::Flowtable => "flowtable",
            Need::VirtualTime => "virtualTime",
            Need::LargeBatches => "largeBatches",
        }
    }

    /// Returns why the need is not met, as the end of a sentence.
    pub fn lack(self) -> &'static str {
        match self {
            Need::LargeBatches => {
                "which an ordinary user's programs cannot have here: SO_SNDBUFFORCE is for the machine's root, so run as root"
            }
            _ => "which this machine's kernel lacks",
        }
    }

    /// Whether the kernel meets the need. Virtual time does not depend on the kernel.
    pub fn is_met_by(self, kernel: &svclab_microvm::probe::Abilities) -> bool {
        match self {
            Need::Ipvs => kernel.can.contains("ipvs/rr"),
            Need::Flowtable => kernel.can.contains("nftables/flowtable"),
            Need::Dummy | Need::Sctp | Need::Netem | Need::LargeBatches => kernel.can.contains(self.name()),
            Need::VirtualTime => false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Iptables,
    Ipvs,
    Nftables,
    Userspace,
    /// None of kube-proxy's modes: another project's proxy, whose description names this mode.
    Other,
}

impl Mode {
    /// kube-proxy's modes.
    pub const ALL: [Mode; 4] = [Mode::Iptables, Mode::Ipvs, Mode::Nftables, Mode::Userspace];
    /// [`Mode::ALL`], and [`Mode::Other`].
    pub const WITH_OTHER: [Mode; 5] = [Mode::Iptables, Mode::Ipvs, Mode::Nftables, Mode::Userspace, Mode::Other];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Iptables => "iptables",
            Mode::Ipvs => "ipvs",
            Mode::Nftables => "nftables",
            Mode::Userspace => "userspace",
            Mode::Other => "other",
        }
    }

    pub fn of_oracle(self) -> svclab_oracle::Mode {
        match self {
            Mode::Iptables => svclab_oracle::Mode::Iptables,
            Mode::Ipvs => svclab_oracle::Mode::Ipvs,
            Mode::Nftables => svclab_oracle::Mode::Nftables,
            Mode::Userspace => svclab_oracle::Mode::Userspace,
            Mode::Other => svclab_oracle::Mode::Other,
        }
    }

    pub fn needs(self) -> &'static [Need] {
        match self {
            Mode::Iptables | Mode::Nftables | Mode::Userspace | Mode::Other => &[],
            Mode::Ipvs => &[Need::Ipvs, Need::Dummy],
        }
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Mode] {
        &Mode::WITH_OTHER
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let all = Mode::WITH_OTHER.map(|mode| mode.to_string());
        let found = Mode::WITH_OTHER.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("unknown mode `{text}`, expected one of {}", all.join(", ")))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
