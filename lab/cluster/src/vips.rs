use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use svclab_netns::links::{NextHop, Route};
use svclab_netns::namespace::Namespace;
use svclab_spec::{LoadBalancerVip, VipMode};

use super::host::ETH0;
use super::{Cluster, ClusterError};

impl Cluster {
    /// Sets the load balancer's addresses; withdraws all others.
    ///
    /// Clients (and nodes with `ipMode: Proxy`) reach the addresses through the load balancer. With `Vip` a packet that
    /// a node does not translate is dropped.
    pub async fn set_vips(&self, vips: Vec<LoadBalancerVip>) -> Result<(), ClusterError> {
        let _changing = self.changing.lock().await;
        let balancer = self.balancer()?;
        let mut addresses = BTreeSet::new();
        for vip in &vips {
            balancer.gateway(vip.address)?;
            if !addresses.insert(vip.address) {
                let item = format!("load-balancer address {}", vip.address);
                return Err(ClusterError::invalid(
                    item,
                    "is published twice: services that share it must agree on ipMode and healthCheckNodePort",
                ));
            }
        }
        let old = balancer.vips();
        for gone in old.iter().filter(|old| !vips.contains(old)) {
            for host in self.hosts_with_route(gone) {
                // Ignores an error: the route may be gone already.
                let _ = host.links().remove_route(gone.address.into(), None).await;
            }
            balancer.withdraw(gone.address).await?;
        }
        for new in vips.into_iter().filter(|new| !old.contains(new)) {
            let failed = || ClusterError::kernel(format!("routes to {}", new.address));
            let route = self.vip_route(&new)?;
            for host in self.hosts_with_route(&new) {
                host.links().set_route(&route).await.map_err(failed())?;
            }
            balancer.publish(new).await?;
        }
        Ok(())
    }

    /// Returns when the load balancer has checked the nodes again for an address, within a second. Returns at once for an
    /// address that it does not publish.
    pub async fn check_lb_health(&self, vip: IpAddr) {
        if let Some(balancer) = &self.balancer {
            balancer.check(vip).await;
        }
    }

    /// Returns the sorted names of the nodes that get traffic.
    pub fn lb_healthy(&self, vip: IpAddr) -> Result<Vec<String>, ClusterError> {
        Ok(self.balancer()?.healthy(vip)?.borrow().clone())
    }

    /// Waits until [`Cluster::lb_healthy`] equals `nodes`, in any order.
    pub async fn wait_lb_healthy(&self, vip: IpAddr, nodes: &[String], timeout: Duration) -> Result<(), ClusterError> {
        let mut healthy = self.balancer()?.healthy(vip)?;
        let mut wanted = nodes.to_vec();
        wanted.sort();
        let wait = healthy.wait_for(|now| *now == wanted);
        match tokio::time::timeout(timeout, wait).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ClusterError::Unknown(format!("load-balancer address {vip}"))),
            Err(_) => {
                let now = self.lb_healthy(vip)?.join(", ");
                let wanted = wanted.join(", ");
                let waiting_for = format!("load balancer sending {vip} to [{wanted}] (now [{now}])");
                Err(ClusterError::TimedOut { waiting_for, after: timeout })
            }
        }
    }

    fn vip_route(&self, vip: &LoadBalancerVip) -> Result<Route, ClusterError> {
        let gateway = self.balancer()?.gateway(vip.address)?;
        Ok(Route::new(vip.address.into(), NextHop::Gateway(gateway, ETH0)))
    }

    /// Returns the hosts that need a route; none for the load balancer's own address.
    fn hosts_with_route<'a>(&'a self, vip: &LoadBalancerVip) -> impl Iterator<Item = &'a Namespace> {
        let own = self.balancer.as_ref().is_some_and(|lb| lb.owns(vip.address));
        let proxied = vip.mode == VipMode::Proxy;
        let clients = self.clients.values().filter(move |_| !own).map(|host| &**host);
        let nodes = self.nodes.values().filter(move |_| !own && proxied);
        clients.chain(nodes.map(|node| &*node.namespace))
    }
}
