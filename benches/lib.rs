//! The benchmarks that `sync.rs` runs. [`ladder`] measures syncs, [`page`] presents the results, and only [`subject`] uses the proxy's
//! library.

pub mod allocations;
#[cfg(target_arch = "x86_64")]
pub mod calls;
pub mod client_view;
pub mod cluster;
pub mod control_plane;
pub mod count_file;
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
pub mod scale;
pub mod sections;
pub mod shared_maps;
pub mod subject;
