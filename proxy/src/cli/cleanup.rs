//! `svcproxy --cleanup`.

use crate::config::Config;
use crate::kernel::iptables::{Commands, IptablesError};
use crate::mode::iptables::cleanup::cleanup;
use crate::model::Family;

/// Cleans up both families; goes on with the second when the first fails.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let mut failure: Option<IptablesError> = None;
    for family in Family::ALL {
        let result = Commands::find(family, config.variant).and_then(|mut commands| cleanup(&mut commands, family));
        match result {
            Ok(removed) => tracing::info!(%family, removed, "cleaned up"),
            Err(error) => {
                tracing::error!(%family, %error, "not cleaned up");
                failure = Some(error);
            }
        }
    }
    match failure {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}
