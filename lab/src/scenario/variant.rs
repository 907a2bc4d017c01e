use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IptablesVariant {
    /// The variant that update-alternatives selects.
    #[value(help = "The variant that `iptables` is on this machine")]
    #[default]
    #[serde(skip)]
    Auto,
    /// nf_tables; svcproxy writes by netlink.
    #[value(help = "iptables-nft; svcproxy writes by netlink")]
    Nft,
    /// nf_tables; svcproxy runs the commands.
    #[value(help = "iptables-nft; svcproxy writes with the commands")]
    #[serde(skip)]
    NftCommands,
    /// xtables.
    #[value(help = "iptables-legacy")]
    Legacy,
}

impl IptablesVariant {
    pub fn name(self) -> &'static str {
        match self {
            IptablesVariant::Auto => "auto",
            IptablesVariant::Nft => "nft",
            IptablesVariant::NftCommands => "nft-commands",
            IptablesVariant::Legacy => "legacy",
        }
    }

    /// Returns svcproxy's flags for the variant. `also` are the scenario's flags, which override them.
    pub(super) fn flags(self, also: &[String]) -> Vec<String> {
        let (variant, writer) = match self {
            IptablesVariant::NftCommands => ("nft", Some("--iptables-writer=commands".to_owned())),
            other => (other.name(), None),
        };
        let own = writer.filter(|writer| !also.contains(writer));
        [format!("--iptables-variant={variant}")].into_iter().chain(own).chain(also.iter().cloned()).collect()
    }
}
