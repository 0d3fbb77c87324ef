//! From values of the protocol to text. Pure: nothing here writes, waits or looks around.

pub(crate) mod export;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod models;
pub(crate) mod providers;
pub(crate) mod turn;

/// A piece of what is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// For stdout, as it is; may end in the middle of a line.
    Text(String),
    /// One or more whole lines for stderr, without the last line end.
    Line(String),
    /// What happens right now, for a spinner; empty = nothing.
    Status(String),
}

/// A time as people read it, in UTC: `2026-12-02 08:20`.
pub(crate) fn minute(ms: i64) -> String {
    let (year, month, day, seconds) = civil(ms);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600, seconds / 60 % 60)
}

/// A time as programs read it (RFC 3339, UTC): `2026-12-02T08:20:21Z`.
pub(crate) fn timestamp(ms: i64) -> String {
    let (year, month, day, s) = civil(ms);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", s / 3600, s / 60 % 60, s % 60)
}

/// Year, month, day and second of the day of a Unix time in milliseconds (proleptic Gregorian calendar, UTC).
fn civil(ms: i64) -> (i64, i64, i64, i64) {
    let seconds = ms.div_euclid(1000);
    let days = seconds.div_euclid(86_400);
    // Days are counted in eras of 400 years that begin on the first of March, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day, seconds.rem_euclid(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_796_199_621_999), "2026-12-02T08:20:21Z");
        assert_eq!(timestamp(-1), "1969-12-31T23:59:59Z");
        assert_eq!(minute(4_102_444_799_000), "2099-12-31 23:59");
    }
}
