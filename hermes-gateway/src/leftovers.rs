//! What restores and backups left beside the store, for `hermes doctor`: told with the command that removes it, and never
//! removed. A store that was put aside may be the only place of what was said after the backup.

use std::time::Duration;

use hermes_store::sqlite::{LeftBy, Leftover};

use crate::protocol::{Check, CheckState};

/// Most leftovers that are named; the others are counted.
const NAMED_MAX: usize = 20;

/// One line for each, the oldest first.
pub(crate) fn checks(found: &[Leftover], now_ms: i64) -> Vec<Check> {
    let note = |detail| Check { name: "leftover".to_owned(), state: CheckState::Note, detail };
    let mut checks: Vec<Check> = found.iter().take(NAMED_MAX).map(|one| note(told(one, now_ms))).collect();
    if found.len() > NAMED_MAX {
        checks.push(note(format!("{} more of them", found.len() - NAMED_MAX)));
    }
    checks
}

fn told(one: &Leftover, now_ms: i64) -> String {
    let path = one.paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    let what = match one.by {
        LeftBy::Replaced => "the store that a restore put aside. When you miss nothing of it:",
        LeftBy::Restore => "of a restore that did not finish. When none is at work:",
        LeftBy::Backup => "of a backup that did not finish. When none is at work:",
    };
    let age = u64::try_from(now_ms.saturating_sub(one.since_ms)).unwrap_or_default();
    format!("{path}\n{}, {}; {what}\n{}", size(one.bytes), old(Duration::from_millis(age)), one.removal())
}

/// `1.5 MB`.
fn size(bytes: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit / (unit / 10)),
        None => format!("{bytes} bytes"),
    }
}

/// `3 days old`, in the largest unit of which it is at least one.
fn old(age: Duration) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let seconds = age.as_secs();
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) if seconds / unit == 1 => format!("1 {name} old"),
        Some((unit, name)) => format!("{} {name}s old", seconds / unit),
        None => "just made".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leftover(by: LeftBy, bytes: u64) -> Leftover {
        Leftover { by, paths: vec!["/h/hermes.db.replaced-7".into()], bytes, since_ms: 0 }
    }

    #[test]
    fn a_leftover_is_told_with_its_size_its_age_and_the_command_that_removes_it() {
        let found = checks(&[leftover(LeftBy::Replaced, 12_345_678)], 3 * 86_400_000 + 5);
        assert_eq!(found[0].state, CheckState::Note, "nothing is broken by it");
        let lines: Vec<&str> = found[0].detail.lines().collect();
        assert_eq!(lines[0], "/h/hermes.db.replaced-7");
        assert!(lines[1].starts_with("12.3 MB, 3 days old; the store that a restore put aside."), "{lines:?}");
        assert_eq!(lines[2], "rm -- /h/hermes.db.replaced-7");
    }

    #[test]
    fn sizes_and_ages_are_those_of_people() {
        for (bytes, want) in [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (2_999_999_999, "2.9 GB")] {
            assert_eq!(size(bytes), want);
        }
        for (seconds, want) in [(0, "just made"), (60, "1 minute old"), (7_199, "1 hour old"), (172_800, "2 days old")]
        {
            assert_eq!(old(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn very_many_are_counted() {
        let many = vec![leftover(LeftBy::Backup, 1); NAMED_MAX + 3];
        let found = checks(&many, 0);
        assert_eq!((found.len(), found[NAMED_MAX].detail.as_str()), (NAMED_MAX + 1, "3 more of them"));
    }
}
