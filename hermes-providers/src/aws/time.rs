//! Times as AWS writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::moment::rfc3339;

const DAY_SECONDS: u64 = 86_400;
/// A clock that is wrong by less than this is not the reason why a signature was refused: AWS allows five minutes.
const MIN_CLOCK_ERROR_MS: u64 = 60_000;

/// `20150830T123600Z`. A time before 1970 is its beginning.
pub(super) fn stamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = civil(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Reads `2015-08-30T12:36:00Z`, and what else RFC 3339 allows, to the second.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let since = rfc3339(text.trim())?.duration_since(UNIX_EPOCH).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(since.as_secs()))
}

/// Days since 1970 to year, month and day (the calendar's 400 years have 146,097 days; years begin in March here, so that
/// the leap day is their last).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// How far our clock is behind the server's, in milliseconds (negative: before it), by the `Date` of an answer that
/// refuses a signature. `None` when that is no reason for it.
pub(crate) fn clock_error_ms(error_type: Option<&str>, date: Option<&str>, now: SystemTime) -> Option<i64> {
    const ABOUT_SIGNATURES: [&str; 6] = [
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "RequestTimeTooSkewed",
        "RequestExpired",
        "RequestInTheFuture",
        "AuthFailure",
    ];
    // The type may be followed by an address, and stand behind a name space.
    let name = error_type?.split(':').next()?.rsplit('#').next()?;
    if !ABOUT_SIGNATURES.contains(&name) {
        return None;
    }
    let theirs = httpdate::parse_http_date(date?).ok()?;
    let (ahead, behind) = (theirs.duration_since(now), now.duration_since(theirs));
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let error = ms(ahead.as_ref().copied().unwrap_or_default()).max(ms(behind.unwrap_or_default()));
    let signed = i64::try_from(error).ok().filter(|_| error >= MIN_CLOCK_ERROR_MS)?;
    Some(if ahead.is_ok() { signed } else { -signed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_written_and_read() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, written, read) in [
            (0, "19700101T000000Z", "1970-01-01T00:00:00Z"),
            (951_782_399, "20000228T235959Z", "2000-02-28T23:59:59Z"),
            (951_782_400, "20000229T000000Z", "2000-02-29T00:00:00Z"),
            (1_440_938_160, "20150830T123600Z", "2015-08-30T12:36:00.123Z"),
            (4_107_542_400, "21000301T000000Z", "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(stamp(at(seconds)), written);
            assert_eq!(parse(read), Some(at(seconds)), "{read}");
        }
        for bad in
            ["", "2015-08-30", "2015-13-30T00:00:00Z", "2015-08-30T25:00:00Z", "1969-01-01T00:00:00Z", "x-y-zTa:b:cZ"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(seconds in 0..250_000_000_000_u64) {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let text = stamp(time);
            let (y, m, d) = (&text[..4], &text[4..6], &text[6..8]);
            let dashed = format!("{y}-{m}-{d}T{}:{}:{}Z", &text[9..11], &text[11..13], &text[13..15]);
            prop_assert_eq!(parse(&dashed), Some(time));
        }
    }

    #[test]
    fn a_clock_is_wrong_only_when_a_signature_was_refused_and_the_dates_differ() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_480);
        let check = |kind: &str, date: &str| clock_error_ms(Some(kind), Some(date), now);
        let later = "Wed, 21 Oct 2015 07:38:00 GMT";
        assert_eq!(check("InvalidSignatureException:http://internal.amazon.com/x/", later), Some(600_000));
        assert_eq!(
            check("com.amazon.coral.service#SignatureDoesNotMatch", "Wed, 21 Oct 2015 07:18:00 GMT"),
            Some(-600_000)
        );
        assert_eq!(check("InvalidSignatureException", "Wed, 21 Oct 2015 07:28:30 GMT"), None);
        assert_eq!(check("AccessDeniedException", later), None);
        assert_eq!(check("InvalidSignatureException", "today"), None);
        assert_eq!(clock_error_ms(None, Some(later), now), None);
        assert_eq!(clock_error_ms(Some("InvalidSignatureException"), None, now), None);
    }
}
