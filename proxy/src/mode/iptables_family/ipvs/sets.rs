use crate::kernel::ipset::{DEFAULT_MAXELEM, SetHeader, SetType};
use crate::model::{Family, Protocol};

/// `IPSET_MAXNAMELEN` less the final zero.
const NAME_MAX: usize = 31;

/// In insertion order of members: allowed sources before the sets that they restrict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// Backends, each with itself as client: hairpins.
    LoopBack,
    ClusterIp,
    ExternalIp,
    ExternalIpLocal,
    LoadBalancerLocal,
    LoadBalancer,
    /// Allowed sources, as ranges.
    LoadBalancerSourceCidr,
    /// Load-balancer IPs, each with itself as client: the node's own connections.
    LoadBalancerSourceIp,
    LoadBalancerFw,
    NodePortLocalTcp,
    NodePortTcp,
    NodePortLocalUdp,
    NodePortUdp,
    NodePortLocalSctp,
    NodePortSctp,
    HealthCheckNodePort,
    /// External frontends without a local backend under policy Local. Not in upstream.
    NoLocalEndpoints,
    /// Cluster IPs without a local backend under policy Local. Not in upstream.
    ClusterIpNoLocalEndpoints,
    IpvsIps,
}

impl SetId {
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

    /// Returns the IPv4 name, without `KUBE-`.
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

    pub fn name(self, family: Family) -> String {
        let mut name = match family {
            Family::V4 => format!("KUBE-{}", self.stem()),
            Family::V6 => format!("KUBE-6-{}", self.stem()),
        };
        name.truncate(NAME_MAX);
        name
    }

    pub fn kind(self) -> SetType {
        match self {
            SetId::LoopBack | SetId::LoadBalancerSourceIp => SetType::HashIpPortIp,
            SetId::LoadBalancerSourceCidr => SetType::HashIpPortNet,
            SetId::NodePortLocalTcp
            | SetId::NodePortTcp
            | SetId::NodePortLocalUdp
            | SetId::NodePortUdp
            | SetId::HealthCheckNodePort => SetType::BitmapPort,
            SetId::IpvsIps => SetType::HashIp,
            _ => SetType::HashIpPort,
        }
    }

    pub fn header(self, family: Family, members: usize) -> SetHeader {
        // Doubled, so that a growing set need not be replaced at each sync.
        let room = u32::try_from(members.saturating_mul(2)).unwrap_or(u32::MAX);
        let maxelem = if members > DEFAULT_MAXELEM as usize { room } else { DEFAULT_MAXELEM };
        SetHeader { name: self.name(family), kind: self.kind(), family, maxelem }
    }

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

    /// Returns the sets of all node ports and of policy Local's.
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
    fn names_fit_the_kernel_and_are_unique() {
        let mut all: Vec<String> =
            SetId::ALL.iter().flat_map(|set| Family::ALL.map(|family| set.name(family))).collect();
        assert!(all.iter().all(|name| name.len() <= NAME_MAX), "{all:?}");
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
