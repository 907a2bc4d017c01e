use std::collections::BTreeMap;

use super::ipvs;
use super::tool::{Limits, run};

pub(super) async fn read(limits: Limits) -> BTreeMap<String, String> {
    let ask = async |program: &'static str| {
        let said = run(&[program, "--version"], limits).await.ok()?;
        Some((program.to_owned(), said.lines().next()?.trim().to_owned()))
    };
    // Even a query of its version makes ipvsadm load the module.
    let ipvsadm = async || if ipvs::is_loaded() { ask("ipvsadm").await } else { None };
    let (iptables, nft_variant, legacy, nft, ipset, ipvsadm) = tokio::join!(
        ask("iptables"),
        ask("iptables-nft"),
        ask("iptables-legacy"),
        ask("nft"),
        ask("ipset"),
        ipvsadm(),
    );
    let svclab = ("svclab".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    [iptables, nft_variant, legacy, nft, ipset, ipvsadm, Some(svclab)].into_iter().flatten().collect()
}
