//! When a history is too long for its window (engine reference, 7.2).

use super::CompressionSettings;
use super::summary::{SUMMARY_FRAME_TOKENS, SUMMARY_MAX_TOKENS};

/// Windows below this keep more of themselves in use: small ones would be compressed all the time.
const SMALL_WINDOW_TOKENS: u64 = 512_000;
/// The share of a small window, in percent, from which its history is compressed.
const SMALL_WINDOW_PERCENT: u64 = 75;
/// No history is compressed below this, where the window allows it.
const FLOOR_TOKENS: u64 = 64_000;
/// The most of the input window, in percent, that the floor may take.
const FLOOR_MAX_PERCENT: u64 = 85;

fn percent(tokens: u64, share: u64) -> u64 {
    // In this order no window overflows and no rounding loses more than one token.
    u64::try_from(u128::from(tokens) * u128::from(share) / 100).unwrap_or(u64::MAX)
}

/// Tokens of input that fit into a window, after the answer's share.
pub(crate) fn input_window(window: u64, max_output_tokens: Option<u64>) -> u64 {
    // A cap as large as the window would leave nothing: half of it is for the input at least.
    window - max_output_tokens.unwrap_or(0).min(window / 2)
}

/// Tokens of a request from which its history is compressed (E34).
pub(crate) fn threshold(settings: &CompressionSettings, window: u64, max_output_tokens: Option<u64>) -> u64 {
    let input = input_window(window, max_output_tokens);
    let share = match window < SMALL_WINDOW_TOKENS {
        true => settings.threshold_percent.max(SMALL_WINDOW_PERCENT),
        false => settings.threshold_percent,
    };
    let by_share = percent(input, share.min(100));
    let most = percent(input, FLOOR_MAX_PERCENT);
    let value = if by_share >= FLOOR_TOKENS { by_share } else { FLOOR_TOKENS.min(most).max(by_share) };
    settings.threshold_tokens.map_or(value, |tokens| tokens.min(value))
}

/// The most tokens that a history may grow to when a model with this window is to read it: its window without the notes
/// that it writes and what is asked of it. A small one does not make histories short: it is shown a part (reference,
/// 7.2, and [`super::summary`]).
pub(crate) fn summariser_ceiling(window: u64) -> u64 {
    window.saturating_sub(SUMMARY_MAX_TOKENS + SUMMARY_FRAME_TOKENS).max(FLOOR_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e34_the_thresholds_of_common_windows() {
        let settings = CompressionSettings::default();
        for (window, want) in [(1_000_000, 500_000), (131_072, 98_304), (65_536, 55_705), (32_768, 27_852)] {
            assert_eq!(threshold(&settings, window, None), want, "window {window}");
        }
    }

    #[test]
    fn the_answer_s_share_and_the_user_s_number_are_taken_off() {
        let settings = CompressionSettings::default();
        assert_eq!(threshold(&settings, 1_000_000, Some(200_000)), 400_000);
        let lower = CompressionSettings { threshold_tokens: Some(10_000), ..settings.clone() };
        assert_eq!(threshold(&lower, 131_072, None), 10_000);
        let higher = CompressionSettings { threshold_tokens: Some(10_000_000), ..settings };
        assert_eq!(threshold(&higher, 131_072, None), 98_304);
    }

    #[test]
    fn the_summariser_s_window_is_a_ceiling_with_a_floor() {
        for (window, want) in
            [(1_000_000, 988_000), (131_072, 119_072), (80_000, 68_000), (32_768, 64_000), (0, 64_000)]
        {
            assert_eq!(summariser_ceiling(window), want, "window {window}");
        }
    }

    #[test]
    fn no_window_is_too_small_or_too_large_for_arithmetic() {
        let settings = CompressionSettings::default();
        for window in [0, 1, 100, u64::MAX] {
            let value = threshold(&settings, window, Some(u64::MAX));
            assert!(value <= input_window(window, Some(u64::MAX)), "window {window}: {value}");
        }
    }
}
