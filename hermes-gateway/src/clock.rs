//! The engine's clock on a real machine.

pub use hermes_core::TokioClock;

/// The date of a time, as `2026-12-02` (UTC).
pub(crate) fn date_of(now_ms: i64) -> String {
    // Days since the epoch to a civil date: years are counted from March, so that the leap day is a year's last.
    let days = now_ms.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_709_164_800_000, "2024-02-29"),
            (1_735_689_599_999, "2024-12-31"),
            (1_796_169_600_000, "2026-12-02"),
            (-1, "1969-12-31"),
        ];
        for (ms, want) in cases {
            assert_eq!(date_of(ms), want, "{ms}");
        }
    }
}
