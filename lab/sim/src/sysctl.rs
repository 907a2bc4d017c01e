//! Kernel settings that affect verdicts, named as in `/proc/sys`.

/// By default the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctls {
    /// `net.ipv4.ip_forward`.
    pub ip_forward: bool,
    /// `net.ipv6.conf.all.forwarding`.
    pub ipv6_forward: bool,
    /// `net.ipv4.conf.*.route_localnet`: allows routing of 127.0.0.0/8.
    pub route_localnet: bool,
    /// `net.ipv4.conf.*.rp_filter`: 1 is strict, 2 is loose.
    pub rp_filter: u8,
    /// `net.ipv4.conf.*.accept_local`: accepts packets from outside whose source is an own address.
    pub accept_local: bool,
    /// `net.ipv4.conf.*.arp_ignore`: 0 answers for all addresses of the machine, 1 for those of the interface.
    pub arp_ignore: u8,
    /// `net.bridge.bridge-nf-call-iptables`.
    pub bridge_nf_call_iptables: bool,
    /// `net.bridge.bridge-nf-call-ip6tables`.
    pub bridge_nf_call_ip6tables: bool,
    /// `net.netfilter.nf_conntrack_tcp_be_liberal`.
    pub tcp_be_liberal: bool,
    /// `net.netfilter.nf_conntrack_tcp_loose`: tracks connections from the middle.
    pub tcp_loose: bool,
    /// `net.ipv4.vs.conntrack`.
    pub vs_conntrack: bool,
    /// `net.ipv4.vs.sloppy_tcp`.
    pub vs_sloppy_tcp: bool,
    /// `net.ipv4.vs.conn_reuse_mode`: 0 never reschedules a reused port.
    pub vs_conn_reuse_mode: u8,
    /// `net.ipv4.vs.expire_nodest_conn`.
    pub vs_expire_nodest_conn: bool,
    /// `net.ipv4.vs.expire_quiescent_template`.
    pub vs_expire_quiescent_template: bool,
}

/// Combined with those of `all` (include/linux/inetdevice.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceSysctls {
    /// `net.ipv4.conf.IFACE.forwarding`: forwards packets that this interface receives.
    pub forwarding: bool,
    /// `route_localnet` of the interface or `all` (`IN_DEV_ORCONF`).
    pub route_localnet: bool,
    /// `accept_local` of the interface or `all`.
    pub accept_local: bool,
    /// `rp_filter`, the greater of the interface's and `all`'s (`IN_DEV_MAXCONF`).
    pub rp_filter: u8,
    /// `src_valid_mark` of the interface or `all`: `rp_filter` looks up routes with the packet's mark.
    pub src_valid_mark: bool,
    /// `arp_ignore`, the greater of the interface's and `all`'s.
    pub arp_ignore: u8,
}

impl Sysctls {
    /// Of an interface without its own.
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
    /// A Kubernetes node with kube-proxy.
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
