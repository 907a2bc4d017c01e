//! The variants of iptables.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which iptables the proxies and the lab's own look at the rules use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// The machine's own choice.
    #[default]
    #[serde(skip)]
    Auto,
    /// nf_tables; svcproxy writes by netlink.
    Nft,
    /// nf_tables; svcproxy writes with the commands.
    #[serde(skip)]
    NftCommands,
    /// xtables.
    Legacy,
}

impl Variant {
    /// The value of `--iptables-variant` that stands for it.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Auto => "auto",
            Variant::Nft => "nft",
            Variant::NftCommands => "nft-commands",
            Variant::Legacy => "legacy",
        }
    }

    /// The flags of svcproxy for it, and `also`: the scenario's own.
    pub(super) fn flags(self, also: &[String]) -> Vec<String> {
        let (variant, writer) = match self {
            Variant::NftCommands => ("nft", Some("--iptables-writer=commands".to_owned())),
            other => (other.name(), None),
        };
        let own = writer.filter(|writer| !also.contains(writer));
        [format!("--iptables-variant={variant}")].into_iter().chain(own).chain(also.iter().cloned()).collect()
    }
}
