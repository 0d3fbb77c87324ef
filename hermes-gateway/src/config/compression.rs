//! `compression`: when and how histories that outgrow their window are shortened.

use hermes_core::CompressionSettings;

use super::error::ConfigError;
use super::values::View;

/// A whole window, in percent.
const WHOLE_PERCENT: f64 = 100.0;

pub(super) fn compression(root: &View<'_>) -> Result<CompressionSettings, ConfigError> {
    let view = root.section("compression")?;
    let words = [("true", true), ("yes", true), ("on", true), ("false", false), ("no", false), ("off", false)];
    let switch = |key: &str| view.key(key).word(&words, "`true` or `false`");
    let rows = |key: &str| view.key(key).whole("a whole number of messages");
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let standard = CompressionSettings::default();
    Ok(CompressionSettings {
        enabled: switch("enabled")?.unwrap_or(standard.enabled),
        threshold_percent: threshold(&view)?.unwrap_or(standard.threshold_percent),
        threshold_tokens: view.key("threshold_tokens").limit("a number of tokens, for example 100000")?,
        protect_first: rows("protect_first_n")?.map_or(standard.protect_first, size),
        protect_last: rows("protect_last_n")?.map_or(standard.protect_last, size),
        attempts_max: view
            .key("max_attempts")
            .positive("a whole number of at least 1")?
            .map_or(standard.attempts_max, |most| u32::try_from(most).unwrap_or(u32::MAX)),
        in_place: switch("in_place")?.unwrap_or(standard.in_place),
        idle_after_ms: view
            .key("idle_compact_after_seconds")
            .seconds("a number of seconds, for example 3600; 0 is never")?
            .map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
            .filter(|ms| *ms > 0),
    })
}

/// The share of the window, which is written as a part of 1 (`0.5`), in percent.
fn threshold(view: &View<'_>) -> Result<Option<u64>, ConfigError> {
    let wanted = "a share of the window between 0.01 and 1, for example 0.5";
    let key = view.key("threshold");
    let Some(text) = key.text(wanted)? else { return Ok(None) };
    let percent = text.parse::<f64>().ok().map(|share| (share * WHOLE_PERCENT).round());
    match percent.filter(|percent| (1.0..=WHOLE_PERCENT).contains(percent)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 100")]
        Some(percent) => Ok(Some(percent as u64)),
        None => Err(key.refused(wanted)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;
    use super::*;

    fn read(text: &str) -> Result<CompressionSettings, String> {
        Config::parse(Path::new("/h/config.yaml"), text).map(|config| config.compression).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_taken_and_the_rest_is_as_ever() {
        assert_eq!(read("model: m").unwrap(), CompressionSettings::default());
        let text = "compression: {enabled: false, threshold: 0.8, threshold_tokens: 90000, protect_first_n: 0, \
                    protect_last_n: 5, max_attempts: 1, in_place: true, idle_compact_after_seconds: 90}";
        let want = CompressionSettings {
            enabled: false,
            threshold_percent: 80,
            threshold_tokens: Some(90_000),
            protect_first: 0,
            protect_last: 5,
            attempts_max: 1,
            in_place: true,
            idle_after_ms: Some(90_000),
        };
        assert_eq!(read(text).unwrap(), want);
        assert_eq!(read("compression: {idle_compact_after_seconds: 0}").unwrap().idle_after_ms, None);
        assert_eq!(read("compression: {threshold: 1}").unwrap().threshold_percent, 100);
    }

    #[test]
    fn i27_a_share_that_is_none_is_told_with_its_line() {
        for bad in ["50", "0", "-1", "half", "NaN"] {
            let told = read(&format!("model: m\ncompression:\n  threshold: {bad}\n")).unwrap_err();
            assert!(told.contains("/h/config.yaml:3") && told.contains("for example 0.5"), "{bad}: {told}");
        }
    }
}
