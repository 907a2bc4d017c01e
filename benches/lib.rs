//! What the benchmarks are made of. `sync.rs` runs them; [`ladder`] is what is measured of syncs, [`page`] what becomes of the
//! figures, [`subject`] all that is known of the proxy's library.

pub mod allocations;
#[cfg(target_arch = "x86_64")]
pub mod calls;
pub mod client_view;
pub mod cluster;
pub mod counts;
pub mod events;
pub mod floor;
pub mod guest;
pub mod ladder;
pub mod measure;
pub mod options;
pub mod packets;
pub mod page;
pub mod plot;
pub mod results;
pub mod sandbox;
pub mod sections;
pub mod shared_maps;
pub mod subject;
