//! Compression after a pause (`compression.idle_compact_after_seconds`): what a provider had cached of the history is gone
//! by then, so its next reading is paid for in full anyway, and it is cheaper to go on with less.
//!
//! It happens where a turn begins, behind the user's row and before the first request. It is a compression like the one at
//! the threshold: it waits out what failed, and it leaves a history alone of which nothing can be shortened.

use hermes_store::{MessagePage, TurnId, View};

use crate::limits::IDLE_COMPRESS_MIN_TOKENS;
use crate::turn::compress::Trigger;
use crate::turn::{Ending, Turn};

/// Newest rows that are looked at: the new turn has one row, or few, where inputs were taken together.
const LOOK_MAX_ROWS: usize = 16;

impl Turn<'_> {
    /// Shortens the history when the conversation was quiet for long before this turn.
    pub(crate) async fn compress_when_idle(&mut self) -> Result<(), Ending> {
        let Some(after_ms) = self.engine.settings.compression.idle_after_ms else { return Ok(()) };
        if self.compress_threshold().is_none() || self.load() < IDLE_COMPRESS_MIN_TOKENS {
            return Ok(());
        }
        let page = MessagePage { from_end: true, limit: LOOK_MAX_ROWS, ..MessagePage::default() };
        let rows = self.store(self.engine.store.messages(self.fence.conversation(), View::Display, page).await)?;
        let times: Vec<_> = rows.iter().map(|row| (&row.turn, row.created_at_ms)).collect();
        match quiet_ms(&times, &self.id) {
            Some(quiet_ms) if quiet_ms >= after_ms => self.compress(Trigger::Idle).await.map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// How long nothing was said before a turn's first row; `None` when nothing stands before it. `rows` are turns and times of
/// rows, oldest first.
fn quiet_ms(rows: &[(&TurnId, i64)], turn: &TurnId) -> Option<u64> {
    let first = rows.iter().position(|(of, _)| *of == turn)?;
    let (_, before_ms) = rows.get(first.checked_sub(1)?)?;
    u64::try_from(rows.get(first)?.1.saturating_sub(*before_ms)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_between_the_last_row_before_a_turn_and_its_first() {
        let [a, b, c] = ["a", "b", "c"].map(|name| TurnId::parse(name).unwrap());
        let rows = [(&a, 1_000), (&a, 2_000), (&b, 9_000), (&b, 9_500)];
        assert_eq!(quiet_ms(&rows, &b), Some(7_000));
        assert_eq!(quiet_ms(&rows, &a), None, "nothing stands before it");
        assert_eq!(quiet_ms(&rows, &c), None);
        assert_eq!(quiet_ms(&[(&a, 9_000), (&b, 2_000)], &b), None, "a clock that went back is no pause");
    }
}
