//! iptables mode: plans as chains and rules, brought to the kernel by `iptables-restore --noflush`.
//!
//! [`objects`] writes one service port down, [`ruleset`] puts the shared chains together, [`syncer`] brings them to the
//! kernel; [`connections`] and [`crate::metrics::rules`] read what rules have counted. What other modes do alike is in [`crate::mode::iptables_family::rules`]. Commands are run behind [`crate::kernel::iptables`] only.

pub mod connections;
pub mod jumps;
pub mod objects;
pub mod ruleset;
pub mod syncer;

pub use crate::mode::iptables_family::rules::{cleanup, names};

/// One address family's proxy in this mode.
pub mod family {
    use super::syncer::Syncer;
    use crate::config::Config;
    use crate::kernel::packet_filter::PacketFilter;
    use crate::mode::family;
    use crate::model::Family;

    /// A proxy over this kernel adapter.
    pub type FamilyProxy<K> = family::FamilyProxy<Syncer<K>>;

    impl<K: PacketFilter> FamilyProxy<K> {
        /// A proxy that knows of no object yet.
        pub fn new(config: Config, family: Family, kernel: K) -> FamilyProxy<K> {
            family::FamilyProxy::with_mode(config, family, Syncer::new(kernel))
        }

        /// The kernel adapter, for tests.
        pub fn kernel(&mut self) -> &mut K {
            self.mode().kernel()
        }
    }
}
