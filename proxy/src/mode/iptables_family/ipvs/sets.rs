//! The IP sets of this mode, under upstream's names.

use crate::kernel::ipset::{DEFAULT_MAXELEM, Kind, SetHeader};
use crate::model::{Family, Protocol};

/// Longest name that the kernel takes, less the final zero (`IPSET_MAXNAMELEN`).
const NAME_MAX: usize = 31;

/// One of the sets, in the order in which members come in: what allows something before what forbids the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// Backends, each with itself as client: the hairpin.
    LoopBack,
    /// Cluster IPs with their ports.
    ClusterIp,
    /// External IPs with their ports, policy Cluster.
    ExternalIp,
    /// External IPs with their ports, policy Local.
    ExternalIpLocal,
    /// Load-balancer IPs with their ports, policy Local.
    LoadBalancerLocal,
    /// Load-balancer IPs with their ports.
    LoadBalancer,
    /// Who may use a load-balancer IP, by range.
    LoadBalancerSourceCidr,
    /// Who may use a load-balancer IP: the node itself, whose packets have that very IP as source.
    LoadBalancerSourceIp,
    /// Load-balancer IPs with source ranges.
    LoadBalancerFw,
    /// Node ports, policy Local.
    NodePortLocalTcp,
    /// Node ports.
    NodePortTcp,
    /// Node ports, policy Local.
    NodePortLocalUdp,
    /// Node ports.
    NodePortUdp,
    /// Node ports on each address, policy Local.
    NodePortLocalSctp,
    /// Node ports on each address.
    NodePortSctp,
    /// Health-check node ports.
    HealthCheckNodePort,
    /// Frontends for outside under policy Local, without a backend on this node. Not upstream's.
    NoLocalEndpoints,
    /// Cluster IPs under policy Local, without a backend on this node. Not upstream's.
    ClusterIpNoLocalEndpoints,
    /// The addresses on the device.
    IpvsIps,
}

impl SetId {
    /// All of them, in order.
    pub const ALL: [SetId; 19] = [
        SetId::LoopBack,
        SetId::ClusterIp,
        SetId::ExternalIp,
        SetId::ExternalIpLocal,
        SetId::LoadBalancerLocal,
        SetId::LoadBalancer,
        SetId::LoadBalancerSourceCidr,
        SetId::LoadBalancerSourceIp,
        SetId::LoadBalancerFw,
        SetId::NodePortLocalTcp,
        SetId::NodePortTcp,
        SetId::NodePortLocalUdp,
        SetId::NodePortUdp,
        SetId::NodePortLocalSctp,
        SetId::NodePortSctp,
        SetId::HealthCheckNodePort,
        SetId::NoLocalEndpoints,
        SetId::ClusterIpNoLocalEndpoints,
        SetId::IpvsIps,
    ];

    /// The IPv4 name, without `KUBE-`.
    fn stem(self) -> &'static str {
        match self {
            SetId::LoopBack => "LOOP-BACK",
            SetId::ClusterIp => "CLUSTER-IP",
            SetId::ExternalIp => "EXTERNAL-IP",
            SetId::ExternalIpLocal => "EXTERNAL-IP-LOCAL",
            SetId::LoadBalancerLocal => "LOAD-BALANCER-LOCAL",
            SetId::LoadBalancer => "LOAD-BALANCER",
            SetId::LoadBalancerSourceCidr => "LOAD-BALANCER-SOURCE-CIDR",
            SetId::LoadBalancerSourceIp => "LOAD-BALANCER-SOURCE-IP",
            SetId::LoadBalancerFw => "LOAD-BALANCER-FW",
            SetId::NodePortLocalTcp => "NODE-PORT-LOCAL-TCP",
            SetId::NodePortTcp => "NODE-PORT-TCP",
            SetId::NodePortLocalUdp => "NODE-PORT-LOCAL-UDP",
            SetId::NodePortUdp => "NODE-PORT-UDP",
            SetId::NodePortLocalSctp => "NODE-PORT-LOCAL-SCTP-HASH",
            SetId::NodePortSctp => "NODE-PORT-SCTP-HASH",
            SetId::HealthCheckNodePort => "HEALTH-CHECK-NODE-PORT",
            SetId::NoLocalEndpoints => "NO-LOCAL-ENDPOINTS",
            SetId::ClusterIpNoLocalEndpoints => "CLUSTER-IP-NO-LOCAL",
            SetId::IpvsIps => "IPVS-IPS",
        }
    }

    /// Its name in a family.
    pub fn name(self, family: Family) -> String {
        let mut name = match family {
            Family::V4 => format!("KUBE-{}", self.stem()),
            Family::V6 => format!("KUBE-6-{}", self.stem()),
        };
        name.truncate(NAME_MAX);
        name
    }

    /// Its type.
    pub fn kind(self) -> Kind {
        match self {
            SetId::LoopBack | SetId::LoadBalancerSourceIp => Kind::HashIpPortIp,
            SetId::LoadBalancerSourceCidr => Kind::HashIpPortNet,
            SetId::NodePortLocalTcp
            | SetId::NodePortTcp
            | SetId::NodePortLocalUdp
            | SetId::NodePortUdp
            | SetId::HealthCheckNodePort => Kind::BitmapPort,
            SetId::IpvsIps => Kind::HashIp,
            _ => Kind::HashIpPort,
        }
    }

    /// How it is made, with room for so many members.
    pub fn header(self, family: Family, members: usize) -> SetHeader {
        // Twice as many as there are, so that a set that grows is not made anew at each sync.
        let room = u32::try_from(members.saturating_mul(2)).unwrap_or(u32::MAX);
        let maxelem = if members > DEFAULT_MAXELEM as usize { room } else { DEFAULT_MAXELEM };
        SetHeader { name: self.name(family), kind: self.kind(), family, maxelem }
    }

    /// The comment that rules which look something up in it carry: upstream's.
    pub fn comment(self) -> &'static str {
        match self {
            SetId::LoopBack => "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
            SetId::ClusterIp => "Kubernetes service cluster ip + port for masquerade purpose",
            SetId::ExternalIp => "Kubernetes service external ip + port for masquerade and filter purpose",
            SetId::ExternalIpLocal => "Kubernetes service external ip + port with externalTrafficPolicy=local",
            SetId::LoadBalancerLocal => "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
            SetId::LoadBalancer => "Kubernetes service lb portal",
            SetId::LoadBalancerSourceCidr => {
                "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"
            }
            SetId::LoadBalancerSourceIp => {
                "Kubernetes service load balancer ip + port + source IP for packet filter purpose"
            }
            SetId::LoadBalancerFw => "Kubernetes service load balancer ip + port for load balancer with sourceRange",
            SetId::NodePortLocalTcp => "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
            SetId::NodePortTcp => "Kubernetes nodeport TCP port for masquerade purpose",
            SetId::NodePortLocalUdp => "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
            SetId::NodePortUdp => "Kubernetes nodeport UDP port for masquerade purpose",
            SetId::NodePortLocalSctp => "Kubernetes nodeport SCTP port with externalTrafficPolicy=local",
            SetId::NodePortSctp => "Kubernetes nodeport SCTP port for masquerade purpose",
            SetId::HealthCheckNodePort => "Kubernetes health check node port",
            SetId::NoLocalEndpoints => "frontends with externalTrafficPolicy=local without local endpoints",
            SetId::ClusterIpNoLocalEndpoints => "cluster IPs with internalTrafficPolicy=local without local endpoints",
            SetId::IpvsIps => "Addresses on the ipvs interface",
        }
    }

    /// The set of node ports of a protocol, and the one of those under policy Local.
    pub fn node_ports(protocol: Protocol) -> (SetId, SetId) {
        match protocol {
            Protocol::Tcp => (SetId::NodePortTcp, SetId::NodePortLocalTcp),
            Protocol::Udp => (SetId::NodePortUdp, SetId::NodePortLocalUdp),
            Protocol::Sctp => (SetId::NodePortSctp, SetId::NodePortLocalSctp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_differ() {
        let mut all: Vec<String> =
            SetId::ALL.iter().flat_map(|set| Family::ALL.map(|family| set.name(family))).collect();
        assert!(all.iter().all(|name| name.len() <= NAME_MAX), "{all:?}");
        // Upstream cuts this one too.
        assert_eq!(SetId::NodePortLocalSctp.name(Family::V6), "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2 * SetId::ALL.len());
        assert!(SetId::ALL.is_sorted());
    }

    #[test]
    fn a_set_has_room_for_its_members() {
        assert_eq!(SetId::LoopBack.header(Family::V4, 65_536).maxelem, 65_536);
        assert_eq!(SetId::LoopBack.header(Family::V4, 65_537).maxelem, 131_074);
    }
}
