//! The lock on the compression of a session, and how long a failure is waited out.

use super::driver::{Backend, Conn, map, text_in};
use super::fenced::Touch;
use super::read::{col, text, text_or_null, word};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::history::{self, CompressionLock, LockEvent, LockOutcome, LockRow, LockState, TakeLock, stale};
use crate::ids::{SessionId, Token};
use crate::limits::COMPRESSION_COOLDOWN_MAX_MS;
use crate::patience::WriteKind;
use crate::rules::{invalid, ms};

const LOCK: &str = "SELECT state, holder, token, fence_token, expires_ms, ttl_ms, cooldown_ms, error \
     FROM compression_locks WHERE session_id = $1";
/// Below which a restored store hands out no token: the lost one may have had a lock on a session that is new here.
const FLOOR: &str = "SELECT COALESCE(MAX(token), 0) FROM tombstones WHERE id = '*'";
const SET: &str = "INSERT INTO compression_locks (session_id, conversation_id, state, holder, token, fence_token, \
     expires_ms, ttl_ms, cooldown_ms) VALUES ($1, $2, 'held', $3, $4, $5, $6, $7, 0) ON CONFLICT (session_id) \
     DO UPDATE SET state = excluded.state, holder = excluded.holder, token = excluded.token, \
     fence_token = excluded.fence_token, expires_ms = excluded.expires_ms, ttl_ms = excluded.ttl_ms";
const RENEW: &str = "UPDATE compression_locks SET expires_ms = $2, ttl_ms = $3 WHERE session_id = $1";
const END: &str = "UPDATE compression_locks SET state = $2 WHERE session_id = $1";
/// A compaction that was committed clears what failed before it.
const END_WELL: &str = "UPDATE compression_locks SET state = $2, cooldown_ms = 0, error = NULL WHERE session_id = $1";
/// The longer of two waits stays.
const FAIL: &str = "UPDATE compression_locks SET state = $2, error = $4, \
     cooldown_ms = CASE WHEN cooldown_ms < $3 THEN $3 ELSE cooldown_ms END WHERE session_id = $1 RETURNING cooldown_ms";

struct Known {
    row: LockRow,
    cooldown_ms: i64,
    error: Option<String>,
}

async fn read(conn: &mut Conn, session: &SessionId) -> Result<Option<Known>, StoreError> {
    let row = sqlx::query(LOCK).bind(session.as_str()).fetch_optional(conn).await.map_err(map)?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Known {
        row: LockRow {
            state: word(&row, 0, LockState::parse)?,
            holder: text(&row, 1)?,
            token: Token(col(&row, 2)?),
            fence: Token(col(&row, 3)?),
            expires_ms: col(&row, 4)?,
            ttl_ms: col(&row, 5)?,
        },
        cooldown_ms: col(&row, 6)?,
        error: text_or_null(&row, 7)?,
    }))
}

/// Fails unless the lock is still held, under this fence.
pub(super) async fn check(conn: &mut Conn, fence: &Fence, lock: &CompressionLock) -> Result<LockRow, StoreError> {
    let known = read(conn, lock.session()).await?.ok_or_else(history::lock_lost)?;
    known.row.check(fence, lock)?;
    Ok(known.row)
}

/// Ends a lock that was checked in this transaction.
pub(super) async fn end(conn: &mut Conn, session: &SessionId, event: LockEvent) -> Result<(), StoreError> {
    let state = LockState::Held.next(event)?;
    let statement = if event == LockEvent::Compact { END_WELL } else { END };
    sqlx::query(statement).bind(session.as_str()).bind(state.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

impl Backend {
    pub(super) async fn take_lock(&self, fence: &Fence, take: TakeLock) -> Result<LockOutcome, StoreError> {
        history::check_holder(&take.holder)?;
        let mut tx = self.write_within(WriteKind::Compression).await?;
        let now = tx.now();
        let fenced = self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let tip = fenced.tip.ok_or_else(|| invalid("the conversation has no session yet; open one"))?;
        if tip != take.session {
            return Err(stale(format!("the conversation goes on in session {tip}")));
        }
        let known = read(tx.conn(), &tip).await?;
        let mut token = match &known {
            Some(known) => known.row.token,
            None => Token(sqlx::query_scalar(FLOOR).fetch_one(tx.conn()).await.map_err(map)?),
        };
        let (cooldown, error) = known.as_ref().map_or((0, None), |known| (known.cooldown_ms, known.error.clone()));
        match known.map(|known| known.row.seen(fence.token(), now)) {
            Some(row) if row.state == LockState::Held && row.holder != take.holder => {
                tx.rollback().await?;
                return Ok(LockOutcome::Held { holder: row.holder, expires_at_ms: row.expires_ms });
            }
            Some(row) if row.state == LockState::Held => {}
            _ => {
                let until_ms = cooldown.min(now.saturating_add(ms(COMPRESSION_COOLDOWN_MAX_MS)));
                if until_ms > now && !take.force {
                    tx.rollback().await?;
                    return Ok(LockOutcome::Cooling { until_ms, error });
                }
                token = Token(token.0 + 1);
            }
        }
        let ttl_ms = ms(take.ttl_ms);
        sqlx::query(SET)
            .bind(tip.as_str())
            .bind(fence.conversation().as_str())
            .bind(text_in(&take.holder))
            .bind(token.0)
            .bind(fence.token().0)
            .bind(now.saturating_add(ttl_ms))
            .bind(ttl_ms)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        tx.commit().await?;
        Ok(LockOutcome::Taken(CompressionLock::new(tip, take.holder, token, cooldown)))
    }

    pub(super) async fn renew_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Activity).await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        check(tx.conn(), fence, lock).await?;
        let ttl_ms = ms(ttl_ms);
        let renew = sqlx::query(RENEW).bind(lock.session().as_str()).bind(now.saturating_add(ttl_ms)).bind(ttl_ms);
        renew.execute(tx.conn()).await.map_err(map)?;
        tx.commit().await
    }

    pub(super) async fn release_lock(&self, fence: &Fence, lock: &CompressionLock) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        match check(tx.conn(), fence, lock).await {
            Ok(_) => end(tx.conn(), lock.session(), LockEvent::Release).await?,
            Err(StoreError::LockLost) => {}
            Err(error) => return Err(error),
        }
        tx.commit().await
    }

    pub(super) async fn fail_lock(
        &self,
        fence: &Fence,
        lock: &CompressionLock,
        cooldown_ms: u64,
        error: &str,
    ) -> Result<i64, StoreError> {
        let mut tx = self.write_within(WriteKind::Normal).await?;
        let now = tx.now();
        self.fence(&mut tx, fence, None, Touch::quiet(now, false)).await?;
        let row = check(tx.conn(), fence, lock).await?;
        let state = row.state.next(LockEvent::Release)?;
        let until = now.saturating_add(ms(cooldown_ms.min(COMPRESSION_COOLDOWN_MAX_MS)));
        let fail = sqlx::query(FAIL)
            .bind(lock.session().as_str())
            .bind(state.as_str())
            .bind(until)
            .bind(text_in(&history::cut_error(error)).into_owned());
        let until = col(&fail.fetch_one(tx.conn()).await.map_err(map)?, 0)?;
        tx.commit().await?;
        Ok(until)
    }
}
