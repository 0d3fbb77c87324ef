//! One time for all processes of a host, kept in the file.
//!
//! A host counts from its start, alike for all its processes; which time that start was, each of them would ask the wall
//! clock for itself, at another moment, and it may have jumped in between. So the file keeps it: one row for each start
//! of the host, written by whoever writes first, and taken by everybody. From then on the wall clock is not asked any
//! more until the host is started again, and then too no time comes before one that the file knows.
//!
//! While the host sleeps, time passes and nobody can beat or renew. When it wakes, every owner would look silent for as
//! long, and the first one to look would rob the others. So the sleep is taken out of what owners are judged by: whoever
//! writes first after it moves all beats and leases on by as long as it lasted, once.
//!
//! A host that does not tell its starts apart (no `/proc`) has no row: there each process goes by its own clock. The
//! same holds for a container that was given a boot id of its own and shares the file with another: both have a row.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::write::BEGIN;
use crate::limits::{RESULT_LEASE_MS, SEND_LEASE_MAX_MS};
use crate::rules::ms;
use crate::time::{Clock, HostTime, SinceBoot};

/// Starts of the host that the file remembers. More than one, because a container may call its own something else.
const BOOTS_KEPT: i64 = 8;
/// A sleep that is shorter is borne with, until several make it up.
const SLEEP_MIN_MS: i64 = 1_000;
/// A wall clock that is further than this behind what the file knows, after a start, says that the file was written
/// with a wrong one: it is believed, and what lies in its future is cut by those who meet it.
const AHEAD_MAX_MS: i64 = 86_400_000;
/// A wall clock that says an earlier time was never set (1 January 2025): it is not believed about anything.
const WALL_MIN_MS: i64 = 1_735_689_600_000;

const _: () = assert!(SLEEP_MIN_MS * 10 < crate::limits::HEARTBEAT_DEAD_MS as i64);

const FIND: &str = "SELECT zero_ms, slept_ms FROM host_clocks WHERE boot_id = $1";
const ADD: &str = "INSERT INTO host_clocks (boot_id, zero_ms, slept_ms, written_ms) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (boot_id) DO NOTHING";
const FORGET: &str = "DELETE FROM host_clocks WHERE boot_id NOT IN \
     (SELECT boot_id FROM host_clocks ORDER BY written_ms DESC, boot_id LIMIT $1)";
/// The newest time by which anything is judged. All of it is found by an index or in a small table.
const NEWEST: &str = "SELECT MAX(COALESCE((SELECT MAX(beat_ms) FROM owners), 0), \
     COALESCE((SELECT MAX(activity_ms) FROM conversations), 0), \
     COALESCE((SELECT MAX(lease_expires_ms - lease_ttl_ms) FROM conversations WHERE lease_owner IS NOT NULL), 0))";
const SLEPT: &str = "UPDATE host_clocks SET slept_ms = $2 WHERE boot_id = $1";
/// In each of these $1 is how long the host slept, and $2 the time: nothing gets later than if it were written now.
const WAKE_OWNERS: &str = "UPDATE owners SET beat_ms = MIN(beat_ms + $1, MAX(beat_ms, $2)) WHERE retired = 0";
const WAKE_LEASES: &str = "UPDATE conversations SET \
     lease_expires_ms = MIN(lease_expires_ms + $1, MAX(lease_expires_ms, $2 + lease_ttl_ms)) \
     WHERE lease_owner IS NOT NULL";
const WAKE_LOCKS: &str = "UPDATE compression_locks SET \
     expires_ms = MIN(expires_ms + $1, MAX(expires_ms, $2 + ttl_ms)) WHERE state = 'held'";
/// $3 is the longest life of such a claim.
const WAKE_RESULTS: &str = "UPDATE async_delegations SET \
     claim_expires_ms = MIN(claim_expires_ms + $1, MAX(claim_expires_ms, $2 + $3)) \
     WHERE delivery = 'claimed' AND delivery IN ('pending', 'claimed')";
/// $3 is the longest life of such a claim.
const WAKE_SENDS: &str = "UPDATE deliveries SET \
     lease_expires_ms = MIN(lease_expires_ms + $1, MAX(lease_expires_ms, $2 + $3)) \
     WHERE is_open = 1 AND lease_expires_ms IS NOT NULL";

/// The clock of one handle: that of its file, as soon as it has written.
#[derive(Debug)]
pub(super) struct FileClock {
    given: Arc<dyn Clock>,
    host: Option<Arc<dyn HostTime>>,
    /// The time at which the host was started, as the file says.
    zero_ms: OnceLock<i64>,
    /// How much of the host's sleep the file has been told of.
    slept_ms: AtomicI64,
}

/// The row of a start.
struct Anchor {
    zero_ms: i64,
    slept_ms: i64,
}

impl FileClock {
    /// A clock that has not seen its file yet.
    pub(super) fn new(given: Arc<dyn Clock>) -> Self {
        let host = given.host().filter(|host| host.boot_id().is_some());
        Self { given, host, zero_ms: OnceLock::new(), slept_ms: AtomicI64::new(0) }
    }

    /// Agrees with the file about now. Must be done before every transaction that goes by [`Clock::now_ms`], outside of
    /// it: what is agreed on stays agreed on when that one is rolled back. It costs something the first time, and after
    /// a sleep of the host.
    pub(super) async fn settle(&self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let Some(host) = &self.host else { return Ok(()) };
        let Some(boot_id) = host.boot_id() else { return Ok(()) };
        let is_settled = |since: SinceBoot, slept_ms: i64| since.slept_ms.saturating_sub(slept_ms) < SLEEP_MIN_MS;
        if self.zero_ms.get().is_some() && is_settled(host.since_boot(), self.slept_ms.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let anchor = match find(conn, boot_id).await? {
            Some(anchor) if is_settled(host.since_boot(), anchor.slept_ms) => anchor,
            _ => agree(conn, boot_id, host.as_ref()).await?,
        };
        self.slept_ms.store(anchor.slept_ms, Ordering::Relaxed);
        self.zero_ms.get_or_init(|| anchor.zero_ms);
        Ok(())
    }
}

impl Clock for FileClock {
    fn now_ms(&self) -> i64 {
        match (&self.host, self.zero_ms.get()) {
            (Some(host), Some(zero_ms)) => zero_ms.saturating_add(host.since_boot().up_ms),
            _ => self.given.now_ms(),
        }
    }
}

async fn find(conn: &mut SqliteConnection, boot_id: &str) -> Result<Option<Anchor>, sqlx::Error> {
    let row = sqlx::query(FIND).bind(boot_id).fetch_optional(conn).await?;
    row.map(|row| Ok(Anchor { zero_ms: row.try_get(0)?, slept_ms: row.try_get(1)? })).transpose()
}

/// Writes what the file does not know yet: this start of the host, or that it slept.
async fn agree(conn: &mut SqliteConnection, boot_id: &str, host: &dyn HostTime) -> Result<Anchor, sqlx::Error> {
    let mut tx = conn.begin_with(BEGIN).await?;
    // Read with the lock in hand: nobody has beaten since, and nobody else counts the same sleep.
    let since = host.since_boot();
    let anchor = match find(&mut tx, boot_id).await? {
        Some(anchor) => wake(&mut tx, boot_id, anchor, since).await?,
        None => {
            let newest_ms: i64 = sqlx::query_scalar(NEWEST).fetch_one(&mut *tx).await?;
            let now_ms = first_time(host.wall_ms(), newest_ms);
            let anchor = Anchor { zero_ms: now_ms.saturating_sub(since.up_ms), slept_ms: since.slept_ms };
            let add = sqlx::query(ADD).bind(boot_id).bind(anchor.zero_ms).bind(anchor.slept_ms).bind(now_ms);
            add.execute(&mut *tx).await?;
            sqlx::query(FORGET).bind(BOOTS_KEPT).execute(&mut *tx).await?;
            anchor
        }
    };
    tx.commit().await?;
    Ok(anchor)
}

/// The time at the first write after a start of the host: that of the wall clock, but none that the file has seen pass.
fn first_time(wall_ms: i64, newest_ms: i64) -> i64 {
    match wall_ms >= WALL_MIN_MS && newest_ms.saturating_sub(wall_ms) > AHEAD_MAX_MS {
        true => wall_ms,
        false => wall_ms.max(newest_ms),
    }
}

/// Takes a sleep of the host out of everything by which an owner is judged.
async fn wake(
    conn: &mut SqliteConnection,
    boot_id: &str,
    anchor: Anchor,
    since: SinceBoot,
) -> Result<Anchor, sqlx::Error> {
    let slept_ms = since.slept_ms.saturating_sub(anchor.slept_ms);
    if slept_ms < SLEEP_MIN_MS {
        return Ok(anchor);
    }
    let now_ms = anchor.zero_ms.saturating_add(since.up_ms);
    for sql in [WAKE_OWNERS, WAKE_LEASES, WAKE_LOCKS] {
        sqlx::query(sql).bind(slept_ms).bind(now_ms).execute(&mut *conn).await?;
    }
    for (sql, life_ms) in [(WAKE_RESULTS, RESULT_LEASE_MS), (WAKE_SENDS, SEND_LEASE_MAX_MS)] {
        sqlx::query(sql).bind(slept_ms).bind(now_ms).bind(ms(life_ms)).execute(&mut *conn).await?;
    }
    sqlx::query(SLEPT).bind(boot_id).bind(since.slept_ms).execute(conn).await?;
    Ok(Anchor { slept_ms: since.slept_ms, ..anchor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i10_the_first_time_after_a_start_lies_behind_what_was_seen() {
        const HOUR_MS: i64 = 3_600_000;
        let now = WALL_MIN_MS + 100 * 24 * HOUR_MS;
        // (wall clock, newest time of the file, what holds)
        let cases = [
            (now, 0, now),
            (now, now - HOUR_MS, now),
            (now - HOUR_MS, now, now),
            // Never set: a small computer without a battery.
            (0, now, now),
            (WALL_MIN_MS - 1, now, now),
            // Set right, after a file was written with a clock of another year.
            (now, now + 1_000 * 24 * HOUR_MS, now),
        ];
        for (wall, newest, want) in cases {
            assert_eq!(first_time(wall, newest), want, "{wall} {newest}");
        }
    }
}
