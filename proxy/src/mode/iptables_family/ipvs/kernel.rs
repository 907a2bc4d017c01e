use crate::kernel::dummy::{self, Rtnetlink, ServiceDevice};
use crate::kernel::ipset::{self, IpSets, Nfnetlink};
use crate::kernel::iptables;
use crate::kernel::ipvs::{self, Genetlink, VirtualServers};
use crate::kernel::netlink::NetlinkError;
use crate::kernel::packet_filter::PacketFilter;
use crate::kernel::writer::IptablesWriter;
use crate::mode::iptables_family::engine::HasPacketFilter;

pub trait IpvsObjects {
    fn servers(&mut self) -> &mut dyn VirtualServers;
    fn sets(&mut self) -> &mut dyn IpSets;
    fn device(&mut self) -> &mut dyn ServiceDevice;
}

pub trait IpvsKernel: HasPacketFilter + IpvsObjects {}

impl<K: HasPacketFilter + IpvsObjects> IpvsKernel for K {}

/// `rules` is `()` for a teardown.
#[derive(Debug, Clone, Default)]
pub struct IpvsAdapters<R, V, S, D> {
    pub rules: R,
    pub servers: V,
    pub sets: S,
    pub device: D,
}

pub type LinuxIpvs<R> = IpvsAdapters<R, Genetlink, Nfnetlink, Rtnetlink>;
pub type FakeIpvsKernel = IpvsAdapters<iptables::FakeIptables, ipvs::FakeIpvs, ipset::FakeIpSets, dummy::FakeDevice>;

impl<R> LinuxIpvs<R> {
    fn with_rules(rules: R) -> Result<LinuxIpvs<R>, NetlinkError> {
        let (servers, sets, device) = (Genetlink::open()?, Nfnetlink::open()?, Rtnetlink::open()?);
        Ok(IpvsAdapters { rules, servers, sets, device })
    }
}

impl LinuxIpvs<IptablesWriter> {
    pub fn open(rules: IptablesWriter) -> Result<LinuxIpvs<IptablesWriter>, NetlinkError> {
        LinuxIpvs::with_rules(rules)
    }
}

impl LinuxIpvs<()> {
    /// Opens the adapters for a teardown; `None` if IPVS mode has left nothing: teardowns remove the device last.
    ///
    /// Fails if the device exists without IPVS or IP sets in the kernel.
    pub fn left_behind() -> Result<Option<LinuxIpvs<()>>, NetlinkError> {
        if nix::net::if_::if_nametoindex(dummy::DEVICE).is_err() {
            return Ok(None);
        }
        LinuxIpvs::with_rules(()).map(Some)
    }
}

impl<R: PacketFilter, V, S, D> HasPacketFilter for IpvsAdapters<R, V, S, D> {
    fn filter(&mut self) -> &mut dyn PacketFilter {
        &mut self.rules
    }
}

impl<R, V: VirtualServers, S: IpSets, D: ServiceDevice> IpvsObjects for IpvsAdapters<R, V, S, D> {
    fn servers(&mut self) -> &mut dyn VirtualServers {
        &mut self.servers
    }

    fn sets(&mut self) -> &mut dyn IpSets {
        &mut self.sets
    }

    fn device(&mut self) -> &mut dyn ServiceDevice {
        &mut self.device
    }
}
