//! Moments as protocols and files write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads RFC 3339: `2026-01-02T03:04:05Z`, with a fraction or an offset too. `None` for anything else, and before 1970.
pub(crate) fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let [year, month, day] = three(date, '-')?.map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (year?, month?, day?);
    let [hour, minute, second] = three(time, ':')?;
    let (hour, minute, second) = (hour.parse::<i64>().ok()?, minute.parse::<i64>().ok()?, second.parse::<f64>().ok()?);
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..61.0).contains(&second);
    if !in_range {
        return None;
    }
    let minutes = hour * 60 + minute - ahead_minutes(zone)?;
    let seconds = u64::try_from(days_since_1970(year, month, day) * 86_400 + minutes * 60).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds) + Duration::try_from_secs_f64(second).ok()?)
}

fn three(text: &str, by: char) -> Option<[&str; 3]> {
    text.split(by).collect::<Vec<_>>().try_into().ok()
}

/// How far a zone is ahead of Greenwich, in minutes.
fn ahead_minutes(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    let ahead = hours * 60 + minutes;
    Some(if zone.starts_with('-') { -ahead } else { ahead })
}

/// Of the Gregorian calendar. Years begin in March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // 153 days in each five months from March on; 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_with_leap_days() {
        let seconds = |text: &str| rfc3339(text).unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(seconds("1970-01-01T00:00:00Z"), 0);
        assert_eq!(seconds("2000-02-29T00:00:00Z"), 951_782_400);
        assert_eq!(seconds("2000-03-01T00:00:00Z"), 951_868_800);
        assert_eq!(seconds("2100-03-01T00:00:00-01:00"), 4_107_546_000);
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for bad in [
            "",
            "2015-10-21",
            "2015-13-21T07:28:30Z",
            "2015-10-21T25:00:00Z",
            "2015-10-21T07:28:30",
            "2015-10-21-1T07:28:30Z",
            "2015-10-21T07:28:30:1Z",
            "2015-10-21T07:28:30+24:00",
            "2015-10-21T07:28:30-01:60",
            "1969-01-01T00:00:00Z",
            "x-y-zTa:b:cZ",
        ] {
            assert_eq!(rfc3339(bad), None, "{bad}");
        }
    }
}
