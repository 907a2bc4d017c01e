//! Kernel settings that affect verdicts (`/proc/sys`).

/// Kernel settings with the kernel's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctls {
    /// `net.ipv4.ip_forward`.
    pub ip_forward: bool,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forward: bool,
    /// `net.ipv4.conf.*.route_localnet`: routes 127.0.0.0/8.
    pub route_localnet: bool,
    /// `net.ipv4.conf.*.rp_filter`: 1 strict, 2 loose.
    pub rp_filter: u8,
    /// `net.ipv4.conf.*.accept_local`: accepts own addresses as outside sources.
    pub accept_local: bool,
    /// `net.ipv4.conf.*.arp_ignore`: 0 answers for the machine's addresses, 1 for the interface's.
    pub arp_ignore: u8,
    /// `net.bridge.bridge-nf-call-iptables`.
    pub bridge_nf_call_iptables: bool,
    /// `net.bridge.bridge-nf-call-ip6tables`.
    pub bridge_nf_call_ip6tables: bool,
    /// `net.netfilter.nf_conntrack_tcp_be_liberal`.
    pub tcp_be_liberal: bool,
    /// `net.netfilter.nf_conntrack_tcp_loose`: picks up existing connections.
    pub tcp_loose: bool,
    /// `net.ipv4.vs.conntrack`.
    pub vs_conntrack: bool,
    /// `net.ipv4.vs.sloppy_tcp`.
    pub vs_sloppy_tcp: bool,
    /// `net.ipv4.vs.conn_reuse_mode`: 0 never reschedules reused ports.
    pub vs_conn_reuse_mode: u8,
    /// `net.ipv4.vs.expire_nodest_conn`.
    pub vs_expire_nodest_conn: bool,
    /// `net.ipv4.vs.expire_quiescent_template`.
    pub vs_expire_quiescent_template: bool,
}

/// An interface's settings, combined with those of `all` (include/linux/inetdevice.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceSysctls {
    /// `net.ipv4.conf.IFACE.forwarding`: forwards packets received here.
    pub forwarding: bool,
    /// `net.ipv6.conf.all.forwarding`, or `net.ipv6.conf.IFACE.force_forwarding`: forwards IPv6 packets received here.
    /// `net.ipv6.conf.IFACE.forwarding` does not affect forwarding (`ip6_forward`, net/ipv6/ip6_output.c).
    pub ipv6_forwarding: bool,
    /// `net.ipv6.conf.IFACE.use_oif_addrs_only`: sources are addresses of the output interface.
    pub oif_addresses_only: bool,
    /// `net.ipv6.conf.IFACE.use_tempaddr` of 2: prefers privacy addresses as sources.
    pub prefer_temporary: bool,
    /// Set for the interface or `all` (`IN_DEV_ORCONF`).
    pub route_localnet: bool,
    /// Set for the interface or `all`.
    pub accept_local: bool,
    /// The maximum of interface and `all` (`IN_DEV_MAXCONF`).
    pub rp_filter: u8,
    /// Set for the interface or `all`: `rp_filter` considers marks.
    pub src_valid_mark: bool,
    /// The maximum of interface and `all`.
    pub arp_ignore: u8,
}

impl Sysctls {
    /// Returns the default settings of interfaces.
    #[must_use]
    pub fn of_interfaces(&self) -> InterfaceSysctls {
        InterfaceSysctls {
            forwarding: self.ip_forward,
            ipv6_forwarding: self.ipv6_forward,
            oif_addresses_only: false,
            prefer_temporary: false,
            route_localnet: self.route_localnet,
            accept_local: self.accept_local,
            rp_filter: self.rp_filter,
            src_valid_mark: false,
            arp_ignore: self.arp_ignore,
        }
    }
}

impl Default for Sysctls {
    fn default() -> Sysctls {
        Sysctls {
            ip_forward: false,
            ipv6_forward: false,
            route_localnet: false,
            rp_filter: 0,
            accept_local: false,
            arp_ignore: 0,
            bridge_nf_call_iptables: false,
            bridge_nf_call_ip6tables: false,
            tcp_be_liberal: false,
            tcp_loose: true,
            vs_conntrack: false,
            vs_sloppy_tcp: false,
            vs_conn_reuse_mode: 1,
            vs_expire_nodest_conn: false,
            vs_expire_quiescent_template: false,
        }
    }
}

impl Sysctls {
    /// Returns the settings of a node with kube-proxy.
    #[must_use]
    pub fn node() -> Sysctls {
        Sysctls {
            ip_forward: true,
            ipv6_forward: true,
            route_localnet: true,
            bridge_nf_call_iptables: true,
            bridge_nf_call_ip6tables: true,
            vs_conntrack: true,
            vs_expire_nodest_conn: true,
            vs_expire_quiescent_template: true,
            ..Sysctls::default()
        }
    }
}
