//! Times as credentials' files write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::moment::rfc3339;

/// Numbers of time below this are seconds, from it on milliseconds.
const SECONDS_BELOW: f64 = 1e11;

/// A time in milliseconds since the epoch: a number of seconds or milliseconds, as such or as text, or RFC 3339.
#[allow(clippy::cast_possible_truncation, reason = "a float saturates, and times are far below 2^53")]
pub(crate) fn when_ms(value: &Value) -> Option<i64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let Some(number) = number else {
        let since = rfc3339(value.as_str()?.trim())?.duration_since(UNIX_EPOCH).ok()?;
        return i64::try_from(since.as_millis()).ok();
    };
    (number > 0.0).then_some(if number < SECONDS_BELOW { (number * 1_000.0) as i64 } else { number as i64 })
}

/// The same as a point in time.
pub(crate) fn when(value: &Value) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(when_ms(value)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_time_is_read() {
        let at = Some(1_700_000_000_500);
        for written in [
            r#"1700000000.5"#,
            r#"1700000000500"#,
            r#""1700000000500""#,
            r#""2023-11-14T22:13:20Z""#,
            r#""2023-11-14T23:13:20.5+01:00""#,
            r#""2023-11-14T20:43:20-01:30""#,
        ] {
            let found = when_ms(&serde_json::from_str(written).unwrap());
            assert!(found == at || found == Some(1_700_000_000_000), "{written}: {found:?}");
        }
        for wrong in [r#""soon""#, "-5", "null", r#""2023-11-14""#, "[1]"] {
            assert_eq!(when_ms(&serde_json::from_str(wrong).unwrap()), None, "{wrong}");
        }
    }
}
