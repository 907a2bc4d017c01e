use std::path::Path;

use super::links::{Bridge, VethEnd};
use super::namespace::{Isolation, Namespace};
use super::sandbox::SandboxError;
use super::{NetnsError, diagnose};

pub(super) fn real_operation() -> Result<(), SandboxError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| SandboxError(format!("starting an event loop: {e}")))?;
    runtime.block_on(async {
        let host = Namespace::create("probe", Isolation::Host)
            .await
            .map_err(|e| SandboxError(format!("{e}; the lab needs nested network and mount namespaces")))?;
        let bridge = Bridge { name: "probe0", index: 10, mac: [2, 0, 0, 0, 0, 1] };
        feature("making a bridge", "CONFIG_BRIDGE", host.links().add_bridge(&bridge).await)?;
        let near = VethEnd { name: "probe1", index: 11, mac: [2, 0, 0, 0, 0, 2] };
        let far = VethEnd { name: "probe2", index: 12, mac: [2, 0, 0, 0, 0, 3] };
        let made = host.add_veth(&near, Some(bridge.index), &far, &host).await;
        feature("making a veth pair", "CONFIG_VETH", made)?;
        let netfilter = host.run(|| Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()).await;
        if !netfilter.unwrap_or(false) {
            return Err(diagnose::no_feature(
                "looking for net.bridge.bridge-nf-call-iptables",
                "CONFIG_BRIDGE_NETFILTER (module br_netfilter)",
                "not there",
            ));
        }
        Ok(())
    })
}

fn feature(attempted: &str, option: &str, result: Result<(), NetnsError>) -> Result<(), SandboxError> {
    result.map_err(|e| diagnose::no_feature(attempted, option, &e.to_string()))
}
