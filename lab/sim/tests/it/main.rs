#![allow(clippy::unwrap_used, reason = "a test may panic, and says why it did not run")]

mod cluster;
mod discovery;
mod hosts;
mod how_to;
mod ipvs;
mod links;
mod matches;
mod nft;
mod nft_elements;
mod nft_frames;
mod nodes;
mod picture;
mod properties;
mod readers;
mod routing;
mod support;
mod unknown;
mod v6;
