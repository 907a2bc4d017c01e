//! What a fleet of proxies costs a large cluster's API server, computed from measured figures: `docs/scale.md`.

mod model;
mod page;
mod plot;
mod simulate;

pub use page::{ScalePage, page};
