//! Kernel settings that a verdict depends on, by the names of `/proc/sys`.

/// Settings of a machine. [`Sysctls::default`] is the kernel's own, [`Sysctls::node`] what Kubernetes nodes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctls {
    /// `net.ipv4.ip_forward`.
    pub ip_forward: bool,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forward: bool,
    /// `net.ipv4.conf.*.route_localnet`: 127.0.0.0/8 may be routed.
    pub route_localnet: bool,
    /// `net.ipv4.conf.*.rp_filter`: 1 is strict, 2 is loose.
    pub rp_filter: u8,
    /// `net.ipv4.conf.*.accept_local`: packets from outside may have one of this machine's addresses as source.
    pub accept_local: bool,
    /// `net.ipv4.conf.*.arp_ignore`: 0 answers for any of this machine's addresses, 1 only for the interface's own.
    pub arp_ignore: u8,
    /// `net.bridge.bridge-nf-call-iptables`.
    pub bridge_nf_call_iptables: bool,
    /// `net.bridge.bridge-nf-call-ip6tables`.
    pub bridge_nf_call_ip6tables: bool,
    /// `net.netfilter.nf_conntrack_tcp_be_liberal`.
    pub tcp_be_liberal: bool,
    /// `net.netfilter.nf_conntrack_tcp_loose`: connections may be picked up in the middle.
    pub tcp_loose: bool,
    /// `net.ipv4.vs.conntrack`.
    pub vs_conntrack: bool,
    /// `net.ipv4.vs.sloppy_tcp`.
    pub vs_sloppy_tcp: bool,
    /// `net.ipv4.vs.conn_reuse_mode`: 0 keeps connections to their destination whatever comes.
    pub vs_conn_reuse_mode: u8,
    /// `net.ipv4.vs.expire_nodest_conn`.
    pub vs_expire_nodest_conn: bool,
    /// `net.ipv4.vs.expire_quiescent_template`.
    pub vs_expire_quiescent_template: bool,
}

/// Settings of an interface, as they come out of its own and those of `all` (include/linux/inetdevice.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceSysctls {
    /// `net.ipv4.conf.IFACE.forwarding`: what comes in here is forwarded.
    pub forwarding: bool,
    /// `route_localnet`, of the interface or of `all` (`IN_DEV_ORCONF`).
    pub route_localnet: bool,
    /// `accept_local`, of the interface or of `all`.
    pub accept_local: bool,
    /// `rp_filter`, the greater of the interface's and `all`'s (`IN_DEV_MAXCONF`).
    pub rp_filter: u8,
    /// `src_valid_mark`, of the interface or of `all`: the look-up of `rp_filter` has the packet's mark.
    pub src_valid_mark: bool,
    /// `arp_ignore`, the greater of the interface's and `all`'s.
    pub arp_ignore: u8,
}

impl Sysctls {
    /// What holds for an interface that has no settings of its own.
    #[must_use]
    pub fn of_interfaces(&self) -> InterfaceSysctls {
        InterfaceSysctls {
            forwarding: self.ip_forward,
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
    /// A node's: it forwards, bridged packets meet iptables, loopback addresses may be routed, and IPVS uses connection
    /// tracking (kube-proxy sets the last two).
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
