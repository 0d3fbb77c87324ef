//! `delegation`: how tasks are given to children.

use hermes_core::DelegationSettings;

use super::error::ConfigError;
use super::values::View;

pub(super) fn delegation(root: &View<'_>) -> Result<DelegationSettings, ConfigError> {
    let view = root.section("delegation")?;
    let count = |key: &str| view.key(key).positive("a whole number of at least 1");
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let standard = DelegationSettings::default();
    Ok(DelegationSettings {
        max_concurrent_children: count("max_concurrent_children")?.map_or(standard.max_concurrent_children, size),
        max_spawn_depth: count("max_spawn_depth")?
            .map_or(standard.max_spawn_depth, |depth| u32::try_from(depth).unwrap_or(u32::MAX)),
        max_iterations: count("max_iterations")?.or(standard.max_iterations),
        max_summary_chars: count("max_summary_chars")?.map_or(standard.max_summary_chars, size),
    })
}
