use std::collections::BTreeMap;
use std::fs;

use super::files;

/// Settings of the whole namespace, under `/proc/sys/net`.
const SINGLE: [&str; 12] = [
    "ipv4/ip_forward",
    "ipv4/ip_local_port_range",
    "ipv4/ip_local_reserved_ports",
    "ipv4/ip_nonlocal_bind",
    "ipv4/fib_multipath_hash_policy",
    "bridge/bridge-nf-call-iptables",
    "bridge/bridge-nf-call-ip6tables",
    "netfilter/nf_conntrack_max",
    "netfilter/nf_conntrack_count",
    "netfilter/nf_conntrack_buckets",
    "netfilter/nf_conntrack_tcp_be_liberal",
    "netfilter/nf_conntrack_tcp_loose",
];
/// Settings of each interface, and of `all` and `default`.
const IPV4: [&str; 7] =
    ["rp_filter", "route_localnet", "accept_local", "arp_ignore", "forwarding", "src_valid_mark", "proxy_arp"];
const IPV6: [&str; 4] = ["forwarding", "force_forwarding", "use_oif_addrs_only", "use_tempaddr"];

pub(super) fn read<'a>(interfaces: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut add = |path: &str| {
        if let Ok(value) = files::proc(&format!("/proc/sys/net/{path}")) {
            settings.insert(format!("net.{}", path.replace('/', ".")), value.trim_end().to_owned());
        }
    };
    SINGLE.into_iter().for_each(&mut add);
    for name in ["all", "default"].into_iter().chain(interfaces) {
        IPV4.into_iter().for_each(|setting| add(&format!("ipv4/conf/{name}/{setting}")));
        IPV6.into_iter().for_each(|setting| add(&format!("ipv6/conf/{name}/{setting}")));
    }
    for file in fs::read_dir("/proc/sys/net/ipv4/vs").into_iter().flatten().flatten() {
        if let Some(name) = file.file_name().to_str() {
            add(&format!("ipv4/vs/{name}"));
        }
    }
    settings
}
