//! Ownership and turns.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::driver::{Backend, Conn, POLL_MAX_MS, WriteTx, locked, map, text_in};
use super::fenced::Touch;
use super::journal::calls_of_turn;
use super::read::{
    admission, admission_columns, col, count, id, signed, text, text_in_or_null, text_or_null, word, word_or_null,
};
use super::rows::{read_turn_answer, rows_of_turn};
use crate::admission::{AdmissionRecord, AdmissionStatus};
use crate::error::StoreError;
use crate::fence::{ClaimOutcome, ClaimPolicy, ClaimRequest, Fence};
use crate::ids::{AdmissionId, ConversationId, Generation, OwnerId, SessionId, Token, TurnId};
use crate::limits::{BEAT_AHEAD_MAX_MS, OWNER_KEEP_MS};
use crate::owner::OwnerInfo;
use crate::patience::WriteKind;
use crate::round::{JournalCall, JournalState, RecordedCall, Round};
use crate::rules::{self, OwnerRow, conflict, invalid, ms, not_found, not_running};
use crate::traits::LeaseStore;
use crate::turn::{OpenTurn, TurnEnd, TurnRecord, TurnStatus};

/// Version 2 of the schema: which claim took the lease, so that a repeated one is recognised.
pub(crate) const COLUMNS: super::schema::Group = &["ALTER TABLE conversations ADD COLUMN lease_claim TEXT"];

/// Takes the conversation's row, which puts its writers in a line, and changes nothing yet.
pub(super) const TAKE: &str = "UPDATE conversations SET revision = revision WHERE id = $1 \
     RETURNING token, lease_owner, lease_expires_ms, lease_ttl_ms, freed_ms, open_turn, tip, generation, seq, lease_claim";

const BEAT: &str = "INSERT INTO owners (id, host, boot_id, pid, pid_start, beat_ms, retired) \
     VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT (id) DO UPDATE SET host = excluded.host, \
     boot_id = excluded.boot_id, pid = excluded.pid, pid_start = excluded.pid_start, beat_ms = excluded.beat_ms, \
     retired = 0";
pub(super) const PRUNE_OWNERS: &str =
    concat!("DELETE FROM owners WHERE id IN (SELECT id FROM owners WHERE beat_ms <= $1 ORDER BY id", locked!(), ")");
const RETIRE: &str = "UPDATE owners SET retired = 1 WHERE id = $1";
const RELEASE_ALL: &str = concat!(
    "UPDATE conversations SET lease_owner = NULL, freed_ms = $2, revision = revision + 1 \
     WHERE id IN (SELECT id FROM conversations WHERE lease_owner = $1 ORDER BY id",
    locked!(),
    ") RETURNING id"
);
const OWNER: &str = "SELECT host, boot_id, pid, pid_start, beat_ms, retired FROM owners WHERE id = $1";
/// No beat is from the far future: the clock went back.
const CLAMP_BEATS: &str = concat!(
    "UPDATE owners SET beat_ms = $1 WHERE id IN (SELECT id FROM owners WHERE beat_ms > $2 ORDER BY id",
    locked!(),
    ")"
);
const CLAMP_LEASE: &str = "UPDATE conversations SET lease_expires_ms = $2 WHERE id = $1";

const HEAD: &str = concat!(
    "SELECT ",
    admission_columns!(),
    " FROM admissions WHERE conversation_id = $1 AND status <> 'terminal' ORDER BY seq LIMIT 1"
);

const GRANT: &str = "UPDATE conversations SET token = token + 1, revision = revision + 1, lease_owner = $2, \
     lease_expires_ms = $3, lease_ttl_ms = $4, generation = generation + $5, \
     open_turn = COALESCE($6, open_turn), lease_claim = $7 WHERE id = $1 RETURNING token, generation";
const START: &str =
    "UPDATE admissions SET status = 'started', generation = $2, turn_id = $3 WHERE id = $1 AND status = 'queued'";
const INSERT_TURN: &str = "INSERT INTO turns (id, conversation_id, admission_id, session_id, generation, attempt, \
     status, api_calls, first_seq, started_ms) VALUES ($1, $2, $3, $4, $5, 1, 'running', 0, $6, $7) \
     ON CONFLICT (id) DO NOTHING";

const RENEW: &str = "UPDATE conversations SET lease_expires_ms = $3, lease_ttl_ms = $4 \
     WHERE id = $1 AND token = $2 AND lease_owner IS NOT NULL";
const RELEASE: &str = "UPDATE conversations SET lease_owner = NULL, freed_ms = $3, revision = revision + 1 \
     WHERE id = $1 AND token = $2 AND lease_owner IS NOT NULL";

/// The fenced end of the running turn, with the lease given back when $6 is 1.
const CLOSE: &str = "UPDATE conversations SET revision = revision + 1 + $6, open_turn = NULL, \
     activity_ms = CASE WHEN $5 = 1 THEN $4 ELSE activity_ms END, \
     lease_expires_ms = CASE WHEN lease_expires_ms <= $4 THEN $4 + lease_ttl_ms ELSE lease_expires_ms END, \
     freed_ms = CASE WHEN $6 = 1 THEN $4 ELSE freed_ms END, \
     lease_owner = CASE WHEN $6 = 1 THEN NULL ELSE lease_owner END \
     WHERE id = $1 AND token = $2 AND lease_owner IS NOT NULL AND open_turn = $3";
const ADOPT: &str = "UPDATE turns SET attempt = attempt + 1 WHERE id = $1";
pub(super) const END_TURN: &str =
    "UPDATE turns SET status = 'ended', reason = $2, detail = $3, api_calls = $4, ended_ms = $5 WHERE id = $1";
const END_REQUEUED: &str = "UPDATE turns SET status = 'ended', reason = $2, ended_ms = $3 WHERE id = $1";
const SETTLE_ADMISSION: &str = "UPDATE admissions SET status = 'terminal', outcome = $2 \
     WHERE id = (SELECT admission_id FROM turns WHERE id = $1)";
const QUEUE_ADMISSION: &str = "UPDATE admissions SET status = 'queued', generation = NULL, turn_id = NULL \
     WHERE id = (SELECT admission_id FROM turns WHERE id = $1)";
const LOSE_ADMISSION: &str = "UPDATE admissions SET status = 'unknown' \
     WHERE id = (SELECT admission_id FROM turns WHERE id = $1)";
const OPEN_CALL: &str = "SELECT id FROM calls WHERE turn_id = $1 AND state <> 'settled' ORDER BY id LIMIT 1";
const SPOKE: &str = "SELECT COUNT(*) FROM messages WHERE conversation_id = $2 \
     AND seq > (SELECT first_seq FROM turns WHERE id = $1) AND turn_id = $1 AND role = 'assistant'";
const TURN_FATE: &str = "SELECT t.reason, a.status, c.token, c.lease_owner FROM conversations c \
     LEFT JOIN turns t ON t.id = $2 AND t.conversation_id = c.id LEFT JOIN admissions a ON a.id = t.admission_id \
     WHERE c.id = $1";
const TURN: &str = "SELECT conversation_id, admission_id, session_id, generation, attempt, status, reason, detail, \
     api_calls, started_ms, ended_ms FROM turns WHERE id = $1";
const REVISION: &str = "SELECT revision FROM conversations WHERE id = $1";

/// First pause between two looks for a change that another process made.
const POLL_FIRST_MS: u64 = 10;

/// The conversation's row as [`TAKE`] returns it.
pub(super) struct Taken {
    pub(super) token: Token,
    pub(super) lease_owner: Option<OwnerId>,
    expires_ms: i64,
    ttl_ms: i64,
    freed_ms: i64,
    pub(super) open_turn: Option<TurnId>,
    pub(super) tip: Option<SessionId>,
    seq: i64,
    lease_claim: Option<TurnId>,
}

pub(super) async fn take(conn: &mut Conn, conversation: &ConversationId) -> Result<Option<Taken>, StoreError> {
    let row = sqlx::query(TAKE).bind(conversation.as_str()).fetch_optional(conn).await.map_err(map)?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Taken {
        token: Token(col(&row, 0)?),
        lease_owner: word_or_null(&row, 1, id(OwnerId::parse))?,
        expires_ms: col(&row, 2)?,
        ttl_ms: col(&row, 3)?,
        freed_ms: col(&row, 4)?,
        open_turn: word_or_null(&row, 5, id(TurnId::parse))?,
        tip: word_or_null(&row, 6, id(SessionId::parse))?,
        seq: col(&row, 8)?,
        lease_claim: word_or_null(&row, 9, id(TurnId::parse))?,
    }))
}

/// What became of a turn, as far as a refused write needs to know.
struct Fate {
    reason: Option<String>,
    is_unknown: bool,
    is_newest: bool,
    is_held: bool,
}

async fn fate(conn: &mut Conn, fence: &Fence, turn: &TurnId) -> Result<Fate, StoreError> {
    let row = sqlx::query(TURN_FATE).bind(fence.conversation().as_str()).bind(turn.as_str()).fetch_optional(conn).await;
    let Some(row) = row.map_err(map)? else { return Err(StoreError::Fenced { held: fence.token() }) };
    let status = word_or_null(&row, 1, AdmissionStatus::parse)?;
    Ok(Fate {
        reason: text_or_null(&row, 0)?,
        is_unknown: status == Some(AdmissionStatus::Unknown),
        is_newest: Token(col(&row, 2)?) == fence.token(),
        is_held: col::<Option<&str>>(&row, 3)?.is_some(),
    })
}

impl Fate {
    /// The error of a write that [`CLOSE`] refused.
    fn refusal(&self, fence: &Fence, turn: &TurnId) -> StoreError {
        match self.is_newest && self.is_held {
            true => not_running(turn),
            false => StoreError::Fenced { held: fence.token() },
        }
    }
}

/// Ends the running turn in the conversation's row. False when the fence or the turn does not hold.
async fn close(
    conn: &mut Conn,
    fence: &Fence,
    turn: &TurnId,
    now: i64,
    activity: bool,
    release: bool,
) -> Result<bool, StoreError> {
    let done = sqlx::query(CLOSE)
        .bind(fence.conversation().as_str())
        .bind(fence.token().0)
        .bind(turn.as_str())
        .bind(now)
        .bind(i64::from(activity))
        .bind(i64::from(release))
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(done.rows_affected() == 1)
}

/// What a claim was told whose answer was lost: its lease is held, and nothing is changed.
async fn repeated(conn: &mut Conn, request: &ClaimRequest, taken: &Taken) -> Result<ClaimOutcome, StoreError> {
    let fence = Fence::new(request.conversation.clone(), request.owner.clone(), taken.token);
    match &taken.open_turn {
        None => Ok(ClaimOutcome::Leased { fence }),
        Some(open) if *open == request.turn => {
            let turn = read_turn(conn, open).await?;
            let admission = super::admissions::by_id(conn, &turn.admission).await?;
            Ok(ClaimOutcome::Turn { fence, admission: Box::new(admission), generation: turn.generation })
        }
        Some(open) => {
            let open = Box::new(open_turn(conn, &request.conversation, open).await?);
            Ok(ClaimOutcome::Recover { fence, open })
        }
    }
}

/// Everything that the journal knows of a turn.
async fn open_turn(conn: &mut Conn, conversation: &ConversationId, turn: &TurnId) -> Result<OpenTurn, StoreError> {
    let record = read_turn(conn, turn).await?;
    let admission = super::admissions::by_id(conn, &record.admission).await?;
    let calls = calls_of_turn(conn, turn).await?;
    let rows = rows_of_turn(conn, conversation, turn).await?;
    let written = rows.iter().map(|row| row.created_at_ms).chain(calls.iter().map(|call| call.written_ms)).max();
    let last_round = rows.iter().rev().find(|row| !row.calls.is_empty());
    let open_round = last_round.and_then(|row| {
        let of_round: Vec<_> = calls
            .iter()
            .filter(|call| call.assistant == row.id)
            .map(|call| RecordedCall { new: call.new.clone(), state: call.state })
            .collect();
        let is_open = of_round.iter().any(|call| call.state != JournalState::Settled);
        is_open.then(|| Round::read_back(turn.clone(), super::read::as_new(row), of_round))
    });
    let journal = calls.into_iter().map(|call| JournalCall {
        call: call.new.call,
        name: call.new.name,
        replay: call.new.replay,
        state: call.state,
        outcome: call.outcome,
    });
    Ok(OpenTurn {
        id: turn.clone(),
        admission,
        generation: record.generation,
        session: record.session,
        attempt: record.attempt,
        started_at_ms: record.started_at_ms,
        last_write_ms: written.unwrap_or(record.started_at_ms),
        calls: journal.collect(),
        open_round,
        last_row: rows.into_iter().next_back(),
    })
}

/// A turn without its answer.
pub(super) async fn read_turn(conn: &mut Conn, turn: &TurnId) -> Result<TurnRecord, StoreError> {
    let row = sqlx::query(TURN).bind(turn.as_str()).fetch_optional(conn).await.map_err(map)?;
    let row = row.ok_or_else(|| not_found("turn", turn))?;
    Ok(TurnRecord {
        id: turn.clone(),
        conversation: word(&row, 0, id(ConversationId::parse))?,
        admission: word(&row, 1, id(AdmissionId::parse))?,
        session: word_or_null(&row, 2, id(SessionId::parse))?,
        generation: Generation(col(&row, 3)?),
        attempt: col(&row, 4)?,
        status: word(&row, 5, TurnStatus::parse)?,
        reason: text_or_null(&row, 6)?,
        detail: text_or_null(&row, 7)?,
        api_calls: count(&row, 8)?,
        started_at_ms: col(&row, 9)?,
        ended_at_ms: col(&row, 10)?,
        answer: None,
    })
}

impl Backend {
    /// Whether an owner is gone: by its own word, by its silence, or by proof.
    pub(super) async fn is_gone(&self, conn: &mut Conn, owner: &OwnerId, now: i64) -> Result<bool, StoreError> {
        let row = sqlx::query(OWNER).bind(owner.as_str()).fetch_optional(conn).await.map_err(map)?;
        let Some(row) = row else { return Ok(false) };
        let known = OwnerRow {
            info: OwnerInfo {
                id: owner.clone(),
                host: text(&row, 0)?,
                boot_id: text(&row, 1)?,
                pid: col(&row, 2)?,
                pid_start: col(&row, 3)?,
            },
            beat_ms: col(&row, 4)?,
            retired: col::<i64>(&row, 5)? != 0,
        };
        if known.is_gone_by_time(now) {
            return Ok(true);
        }
        // A probe reads files.
        let probe = self.probe();
        let proof = tokio::task::spawn_blocking(move || probe.is_provably_dead(&known.info)).await;
        Ok(proof.unwrap_or(false))
    }

    async fn grant(
        &self,
        conn: &mut Conn,
        request: &ClaimRequest,
        now: i64,
        starts: bool,
    ) -> Result<(Fence, Generation), StoreError> {
        let ttl = ms(request.ttl_ms);
        let row = sqlx::query(GRANT)
            .bind(request.conversation.as_str())
            .bind(request.owner.as_str())
            .bind(now.saturating_add(ttl))
            .bind(ttl)
            .bind(i64::from(starts))
            .bind(starts.then_some(request.turn.as_str()))
            .bind(request.turn.as_str())
            .fetch_one(conn)
            .await
            .map_err(map)?;
        let fence = Fence::new(request.conversation.clone(), request.owner.clone(), Token(col(&row, 0)?));
        Ok((fence, Generation(col(&row, 1)?)))
    }

    /// The lease as it stands: when it ended, or `Err` with who holds it.
    async fn lease(
        &self,
        tx: &mut WriteTx,
        request: &ClaimRequest,
        taken: &Taken,
        now: i64,
    ) -> Result<Result<i64, (ClaimOutcome, bool)>, StoreError> {
        let Some(owner) = &taken.lease_owner else { return Ok(Ok(taken.freed_ms)) };
        // A clock that went back must not keep anybody waiting for hours (D3): no lease is longer than its life.
        let expires_at_ms = taken.expires_ms.min(now.saturating_add(taken.ttl_ms));
        let is_cut = expires_at_ms != taken.expires_ms;
        if now < expires_at_ms && !self.is_gone(tx.conn(), owner, now).await? {
            if is_cut {
                let cut = sqlx::query(CLAMP_LEASE).bind(request.conversation.as_str()).bind(expires_at_ms);
                cut.execute(tx.conn()).await.map_err(map)?;
            }
            return Ok(Err((ClaimOutcome::Held { owner: owner.clone(), expires_at_ms }, is_cut)));
        }
        Ok(Ok(expires_at_ms.min(now)))
    }

    async fn start(
        &self,
        tx: &mut WriteTx,
        request: &ClaimRequest,
        taken: &Taken,
        mut head: AdmissionRecord,
        now: i64,
    ) -> Result<ClaimOutcome, StoreError> {
        let (fence, generation) = self.grant(tx.conn(), request, now, true).await?;
        let inserted = sqlx::query(INSERT_TURN)
            .bind(request.turn.as_str())
            .bind(request.conversation.as_str())
            .bind(head.receipt.admission.as_str())
            .bind(taken.tip.as_ref().map(SessionId::as_str))
            .bind(generation.0)
            .bind(taken.seq)
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        if inserted.rows_affected() == 0 {
            return Err(conflict("turn", &request.turn));
        }
        sqlx::query(START)
            .bind(head.receipt.admission.as_str())
            .bind(generation.0)
            .bind(request.turn.as_str())
            .execute(tx.conn())
            .await
            .map_err(map)?;
        head.receipt.status = AdmissionStatus::Started;
        head.receipt.generation = Some(generation);
        head.receipt.turn = Some(request.turn.clone());
        Ok(ClaimOutcome::Turn { fence, admission: Box::new(head), generation })
    }

    /// What a claim finds, and whether it changed anything.
    async fn find(
        &self,
        tx: &mut WriteTx,
        request: &ClaimRequest,
        now: i64,
    ) -> Result<(ClaimOutcome, bool), StoreError> {
        let id = &request.conversation;
        let taken = take(tx.conn(), id).await?.ok_or_else(|| not_found("conversation", id))?;
        let ahead = now.saturating_add(ms(BEAT_AHEAD_MAX_MS));
        let clamped = sqlx::query(CLAMP_BEATS).bind(now).bind(ahead).execute(tx.conn()).await.map_err(map)?;
        let clamped = clamped.rows_affected() > 0;
        if taken.lease_owner.as_ref() == Some(&request.owner) && taken.lease_claim.as_ref() == Some(&request.turn) {
            return Ok((repeated(tx.conn(), request, &taken).await?, clamped));
        }
        let free_since = match self.lease(tx, request, &taken, now).await? {
            Ok(free_since) => free_since,
            Err((held, is_cut)) => return Ok((held, clamped || is_cut)),
        };
        if let Some(open) = &taken.open_turn {
            let (fence, _) = self.grant(tx.conn(), request, now, false).await?;
            let open = Box::new(open_turn(tx.conn(), id, open).await?);
            return Ok((ClaimOutcome::Recover { fence, open }, true));
        }
        if request.policy == ClaimPolicy::LeaseOnly {
            let (fence, _) = self.grant(tx.conn(), request, now, false).await?;
            return Ok((ClaimOutcome::Leased { fence }, true));
        }
        let head = sqlx::query(HEAD).bind(id.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
        let Some(head) = head.as_ref().map(admission).transpose()? else { return Ok((ClaimOutcome::Empty, clamped)) };
        if head.receipt.status == AdmissionStatus::Unknown {
            return Ok((ClaimOutcome::Blocked, clamped));
        }
        let is_own = request.owner == head.submitted_by || request.policy == ClaimPolicy::Any;
        let gone = !is_own && self.is_gone(tx.conn(), &head.submitted_by, now).await?;
        let since = head.created_at_ms.max(free_since);
        if !rules::may_take(request.policy, &request.owner, &head.submitted_by, gone, since, now) {
            return Ok((ClaimOutcome::NotMine, clamped));
        }
        Ok((self.start(tx, request, &taken, head, now).await?, true))
    }
}

#[async_trait]
impl LeaseStore for Backend {
    async fn heartbeat(&self, owner: &OwnerInfo) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Beat).await?;
        let now = tx.now();
        sqlx::query(BEAT)
            .bind(owner.id.as_str())
            .bind(text_in(&owner.host))
            .bind(text_in(&owner.boot_id))
            .bind(owner.pid)
            .bind(owner.pid_start)
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        let before = now.saturating_sub(ms(OWNER_KEEP_MS));
        sqlx::query(PRUNE_OWNERS).bind(before).execute(tx.conn()).await.map_err(map)?;
        tx.commit().await
    }

    async fn retire(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Release).await?;
        let now = tx.now();
        // Conversations before owners, as a claim takes them.
        let freed = sqlx::query(RELEASE_ALL).bind(owner.as_str()).bind(now).fetch_all(tx.conn()).await.map_err(map)?;
        sqlx::query(RETIRE).bind(owner.as_str()).execute(tx.conn()).await.map_err(map)?;
        for row in &freed {
            tx.announce(&word(row, 0, id(ConversationId::parse))?);
        }
        tx.commit().await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let (outcome, changed) = self.find(&mut tx, &request, now).await?;
        match changed {
            true => {
                tx.announce(&request.conversation);
                tx.commit().await?;
            }
            false => tx.rollback().await?,
        }
        Ok(outcome)
    }

    async fn renew(&self, fence: &Fence, ttl_ms: u64) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Activity).await?;
        let now = tx.now();
        let ttl = ms(ttl_ms);
        let done = sqlx::query(RENEW)
            .bind(fence.conversation().as_str())
            .bind(fence.token().0)
            .bind(now.saturating_add(ttl))
            .bind(ttl)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        if done.rows_affected() == 0 {
            return Err(StoreError::Fenced { held: fence.token() });
        }
        tx.commit().await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        let mut tx = self.write_within(WriteKind::Release).await?;
        let now = tx.now();
        sqlx::query(RELEASE)
            .bind(fence.conversation().as_str())
            .bind(fence.token().0)
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        tx.announce(fence.conversation());
        tx.commit().await
    }

    async fn adopt_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, Some(turn), Touch::quiet(now, false)).await?;
        sqlx::query(ADOPT).bind(turn.as_str()).execute(tx.conn()).await.map_err(map)?;
        tx.commit().await
    }

    async fn requeue(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        if !close(tx.conn(), fence, turn, now, false, false).await? {
            return Err(fate(tx.conn(), fence, turn).await?.refusal(fence, turn));
        }
        let spoke = sqlx::query_scalar(SPOKE).bind(turn.as_str()).bind(fence.conversation().as_str());
        let spoke: i64 = spoke.fetch_one(tx.conn()).await.map_err(map)?;
        if spoke > 0 {
            return Err(invalid(format!("turn {turn} has recorded what a model said; it cannot be put back")));
        }
        sqlx::query(QUEUE_ADMISSION).bind(turn.as_str()).execute(tx.conn()).await.map_err(map)?;
        let end = sqlx::query(END_REQUEUED).bind(turn.as_str()).bind(rules::REQUEUED).bind(now);
        end.execute(tx.conn()).await.map_err(map)?;
        tx.announce(fence.conversation());
        tx.commit().await
    }

    async fn settle_turn(&self, fence: &Fence, turn: &TurnId, end: TurnEnd, release: bool) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        if !close(tx.conn(), fence, turn, now, true, release).await? {
            let fate = fate(tx.conn(), fence, turn).await?;
            // A repetition is no error, even when the first one gave the lease back, as long as nobody took it since.
            return match &fate.reason {
                Some(reason) if fate.is_newest && *reason == end.reason => tx.rollback().await,
                Some(reason) if fate.is_newest => Err(invalid(format!("turn {turn} is over already: {reason}"))),
                _ => Err(fate.refusal(fence, turn)),
            };
        }
        let open: Option<String> =
            sqlx::query_scalar(OPEN_CALL).bind(turn.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
        if let Some(call) = open {
            return Err(invalid(format!("call {call} has no stored result")));
        }
        sqlx::query(END_TURN)
            .bind(turn.as_str())
            .bind(text_in(&end.reason))
            .bind(text_in_or_null(end.detail.as_deref()))
            .bind(signed(end.api_calls))
            .bind(now)
            .execute(tx.conn())
            .await
            .map_err(map)?;
        let settle = sqlx::query(SETTLE_ADMISSION).bind(turn.as_str()).bind(end.outcome.as_str());
        settle.execute(tx.conn()).await.map_err(map)?;
        super::delivery::owe_answer(tx.conn(), fence.conversation(), turn, &end, now).await?;
        tx.announce(fence.conversation());
        tx.commit().await
    }

    async fn lose_turn(&self, fence: &Fence, turn: &TurnId) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        if !close(tx.conn(), fence, turn, now, false, false).await? {
            let fate = fate(tx.conn(), fence, turn).await?;
            return match fate.is_newest && fate.is_held && fate.is_unknown {
                true => tx.rollback().await,
                false => Err(fate.refusal(fence, turn)),
            };
        }
        sqlx::query(LOSE_ADMISSION).bind(turn.as_str()).execute(tx.conn()).await.map_err(map)?;
        tx.announce(fence.conversation());
        tx.commit().await
    }

    async fn turn(&self, id: &TurnId) -> Result<TurnRecord, StoreError> {
        let mut tx = self.readers().begin().await.map_err(map)?;
        let mut record = read_turn(&mut tx, id).await?;
        record.answer = read_turn_answer(&mut tx, id).await?;
        Ok(record)
    }

    async fn wait_for_change(
        &self,
        conversation: &ConversationId,
        seen: i64,
        max_wait_ms: u64,
    ) -> Result<i64, StoreError> {
        let deadline = Instant::now() + Duration::from_millis(max_wait_ms.min(crate::limits::LEASE_WAIT_MS));
        let mut pause = POLL_FIRST_MS;
        let changed = self.changed(conversation);
        loop {
            // The waiter is registered before the row is read: no change of this process falls between the two.
            let notified = changed.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            let revision: Option<i64> = sqlx::query_scalar(REVISION)
                .bind(conversation.as_str())
                .fetch_optional(self.readers())
                .await
                .map_err(map)?;
            let revision = revision.ok_or_else(|| not_found("conversation", conversation))?;
            let left = deadline.saturating_duration_since(Instant::now());
            if revision > seen || left.is_zero() {
                return Ok(revision);
            }
            // Another process's commit wakes nobody here: look again, soon at first.
            let _ = tokio::time::timeout(left.min(Duration::from_millis(pause)), notified).await;
            pause = (pause * 2).min(POLL_MAX_MS);
        }
    }
}
