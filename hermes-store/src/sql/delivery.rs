//! What goes out.

use async_trait::async_trait;

use super::driver::{Backend, Conn, Row, WriteTx, locked, map, text_in};
use super::fenced::Touch;
use super::inbound::take_replies;
use super::read::{col, id, size, text, text_in_or_null, text_or_null, word, word_or_null};
use super::rows::read_turn_answer;
use super::schema::Group;
use crate::admission::AdmissionOutcome;
use crate::delivery::{
    AmbiguousPolicy, DeliveryClaim, DeliveryDecision, DeliveryFence, DeliveryFilter, DeliveryKind, DeliveryRecord,
    DeliveryRequest, DeliveryState, DeliveryStore, LOST, NewDelivery, RetryAfter, Step, TOO_OLD, Target,
};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::ids::{ConversationId, DeliveryId, OwnerId, TurnId};
use crate::limits::{
    SEND_KEEP_MS, SEND_KEEP_ROWS, SEND_LIST_MAX, SEND_LOOK_MAX, SEND_OPEN_MAX, SEND_RETRY_AFTER_MAX_MS, SEND_STALE_MS,
};
use crate::rules::{conflict, invalid, ms, not_found};
use crate::turn::TurnEnd;

/// A lane is one (account, chat): it gives each delivery its place, and its row is what the senders of the chat wait for.
/// `is_open` is 0 once a delivery is over.
pub(crate) const TABLES: Group = &[
    "CREATE TABLE delivery_lanes (
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        place BIGINT NOT NULL,
        PRIMARY KEY (account, chat)
    )",
    "CREATE TABLE deliveries (
        id TEXT PRIMARY KEY NOT NULL,
        conversation_id TEXT NOT NULL REFERENCES conversations (id),
        turn_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        part BIGINT NOT NULL,
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        thread TEXT NOT NULL,
        reply_to TEXT,
        content TEXT NOT NULL,
        place BIGINT NOT NULL,
        state TEXT NOT NULL,
        is_open BIGINT NOT NULL,
        attempt BIGINT NOT NULL,
        is_duplicate BIGINT NOT NULL,
        platform_ids TEXT NOT NULL,
        error TEXT,
        not_before_ms BIGINT,
        owner TEXT,
        lease_expires_ms BIGINT,
        created_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        UNIQUE (conversation_id, turn_id, kind, part, account, chat, thread)
    )",
    "CREATE INDEX deliveries_open ON deliveries (account, chat, place) WHERE is_open = 1",
    "CREATE INDEX deliveries_by_age ON deliveries (created_ms, id)",
];

/// Columns of [`delivery`].
macro_rules! delivery_columns {
    () => {
        "id, conversation_id, turn_id, kind, part, account, chat, thread, reply_to, content, state, attempt, \
         is_duplicate, platform_ids, error, not_before_ms, owner, lease_expires_ms, created_ms, ended_ms"
    };
}

const NEXT_PLACE: &str = "INSERT INTO delivery_lanes (account, chat, place) VALUES ($1, $2, 1) \
     ON CONFLICT (account, chat) DO UPDATE SET place = delivery_lanes.place + 1 RETURNING place";
const TAKE_LANE: &str = "UPDATE delivery_lanes SET place = place WHERE account = $1 AND chat = $2";
const INSERT: &str = "INSERT INTO deliveries (id, conversation_id, turn_id, kind, part, account, chat, thread, reply_to, \
     content, place, state, is_open, attempt, is_duplicate, platform_ids, created_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', 1, 0, 0, '[]', $12) ON CONFLICT (id) DO NOTHING";
/// Chats of which something can be done, the oldest first; those that a sender seems to be at come last. $2 is 1 for a
/// claimer that sends ambiguous ones again.
const CHATS: &str = "SELECT d.chat FROM deliveries d WHERE d.account = $1 AND d.is_open = 1 \
     AND ($2 = 1 OR d.state <> 'ambiguous') AND NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.account = $1 \
     AND e.is_open = 1 AND e.chat = d.chat AND e.place < d.place AND ($2 = 1 OR e.state <> 'ambiguous')) \
     AND (d.state <> 'failed' OR d.not_before_ms <= $3 OR d.not_before_ms > $4 OR d.created_ms < $5) \
     ORDER BY CASE WHEN d.state = 'attempting' AND d.lease_expires_ms > $3 THEN 1 ELSE 0 END, d.created_ms, d.id \
     LIMIT $6";
const HEAD: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM deliveries WHERE account = $1 AND chat = $2 AND is_open = 1 AND ($3 = 1 OR state <> 'ambiguous') \
     ORDER BY place LIMIT 1"
);
const NEXT_CHANGE: &str = "SELECT MIN(CASE WHEN state = 'failed' THEN not_before_ms WHEN state = 'attempting' \
     THEN lease_expires_ms END) FROM deliveries WHERE account = $1 AND is_open = 1";
const SAVE: &str = "UPDATE deliveries SET state = $2, is_open = $3, attempt = $4, is_duplicate = $5, platform_ids = $6, \
     error = $7, not_before_ms = $8, owner = $9, lease_expires_ms = $10, ended_ms = $11 WHERE id = $1";
const TAKE: &str = concat!("UPDATE deliveries SET attempt = attempt WHERE id = $1 RETURNING ", delivery_columns!());
const ONE: &str = concat!("SELECT ", delivery_columns!(), " FROM deliveries WHERE id = $1");
const LIST: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM deliveries WHERE (CAST($1 AS TEXT) IS NULL OR conversation_id = $1) \
     AND (CAST($2 AS TEXT) IS NULL OR account = $2) AND ($3 = 0 OR is_open = 1) \
     ORDER BY created_ms DESC, id DESC LIMIT $4"
);
const COUNT_OPEN: &str = "SELECT COUNT(*) FROM deliveries WHERE conversation_id = $1 AND is_open = 1";
const BUSY: &str = "SELECT id FROM deliveries WHERE conversation_id = $1 AND state = 'attempting' \
     ORDER BY id LIMIT 1";
const DELETE_OF: &str = "DELETE FROM deliveries WHERE conversation_id = $1";

const LOSE_OVERDUE: &str = concat!(
    "UPDATE deliveries SET state = 'ambiguous', lease_expires_ms = NULL, error = $2 WHERE id IN (SELECT id \
     FROM deliveries WHERE is_open = 1 AND state = 'attempting' AND lease_expires_ms <= $1 ORDER BY id",
    locked!(),
    ")"
);
const GIVE_UP: &str = concat!(
    "UPDATE deliveries SET state = 'abandoned', is_open = 0, not_before_ms = NULL, ended_ms = $2, \
     error = CASE WHEN error IS NULL THEN $3 ELSE $3 || '; before that: ' || error END WHERE id IN (SELECT id \
     FROM deliveries WHERE is_open = 1 AND state <> 'attempting' AND created_ms < $1 ORDER BY id",
    locked!(),
    ")"
);
const PRUNE_OLD: &str = concat!(
    "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE is_open = 0 AND ended_ms <= $1 ORDER BY id",
    locked!(),
    ")"
);
const PRUNE_MANY: &str = concat!(
    "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE id IN (SELECT x.id FROM (SELECT id, \
     ROW_NUMBER() OVER (PARTITION BY conversation_id ORDER BY ended_ms DESC, id DESC) AS nth FROM deliveries \
     WHERE is_open = 0) x WHERE x.nth > $1) AND is_open = 0 ORDER BY id",
    locked!(),
    ")"
);

fn delivery(row: &Row) -> Result<DeliveryRecord, StoreError> {
    Ok(DeliveryRecord {
        id: word(row, 0, id(DeliveryId::parse))?,
        conversation: word(row, 1, id(ConversationId::parse))?,
        turn: word(row, 2, id(TurnId::parse))?,
        kind: word(row, 3, DeliveryKind::parse)?,
        part: col(row, 4)?,
        target: Target { account: text(row, 5)?, chat: text(row, 6)?, thread: text(row, 7)? },
        reply_to: text_or_null(row, 8)?,
        content: text(row, 9)?,
        state: word(row, 10, DeliveryState::parse)?,
        attempt: col(row, 11)?,
        may_be_duplicate: col::<i64>(row, 12)? != 0,
        platform_ids: word(row, 13, |text| serde_json::from_str(text).ok())?,
        error: text_or_null(row, 14)?,
        not_before_ms: col(row, 15)?,
        owner: word_or_null(row, 16, id(OwnerId::parse))?,
        lease_expires_ms: col(row, 17)?,
        created_at_ms: col(row, 18)?,
        ended_at_ms: col(row, 19)?,
    })
}

async fn save(conn: &mut Conn, record: &DeliveryRecord) -> Result<(), StoreError> {
    let platform_ids =
        serde_json::to_string(&record.platform_ids).map_err(|error| StoreError::Io { detail: error.to_string() })?;
    sqlx::query(SAVE)
        .bind(record.id.as_str())
        .bind(record.state.as_str())
        .bind(i64::from(record.state.is_open()))
        .bind(record.attempt)
        .bind(i64::from(record.may_be_duplicate))
        .bind(platform_ids)
        .bind(text_in_or_null(record.error.as_deref()))
        .bind(record.not_before_ms)
        .bind(record.owner.as_ref().map(OwnerId::as_str))
        .bind(record.lease_expires_ms)
        .bind(record.ended_at_ms)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(())
}

/// Adds a delivery behind those of its chat, unless it is there.
async fn owe(conn: &mut Conn, record: &DeliveryRecord) -> Result<bool, StoreError> {
    let target = &record.target;
    let place = sqlx::query_scalar(NEXT_PLACE)
        .bind(text_in(&target.account))
        .bind(text_in(&target.chat))
        .fetch_one(&mut *conn)
        .await;
    let place: i64 = place.map_err(map)?;
    let done = sqlx::query(INSERT)
        .bind(record.id.as_str())
        .bind(record.conversation.as_str())
        .bind(record.turn.as_str())
        .bind(record.kind.as_str())
        .bind(record.part)
        .bind(text_in(&target.account))
        .bind(text_in(&target.chat))
        .bind(text_in(&target.thread))
        .bind(text_in_or_null(record.reply_to.as_deref()))
        .bind(text_in(&record.content))
        .bind(place)
        .bind(record.created_at_ms)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(done.rows_affected() == 1)
}

/// The end of a turn: what was owed for its inputs becomes deliveries of its answer, or of the notice why there is none.
pub(super) async fn owe_answer(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
    end: &TurnEnd,
    now: i64,
) -> Result<(), StoreError> {
    let replies = take_replies(conn, conversation, turn).await?;
    if replies.is_empty() {
        return Ok(());
    }
    let answer = match end.outcome {
        AdmissionOutcome::Completed => read_turn_answer(conn, turn).await?.map(|row| row.content),
        _ => None,
    };
    for reply in replies {
        let new = NewDelivery::of_turn(reply, answer.as_deref(), end);
        let id = new.id(conversation, turn)?;
        owe(conn, &new.into_record(id, conversation, turn, now)).await?;
    }
    Ok(())
}

/// A conversation is about to be deleted: its deliveries go with it, unless one is being sent.
pub(super) async fn forget(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    let busy = sqlx::query_scalar(BUSY).bind(conversation.as_str()).fetch_optional(&mut *conn).await;
    let busy: Option<String> = busy.map_err(map)?;
    if let Some(busy) = busy {
        return Err(invalid(format!("delivery {busy} of the conversation is being sent")));
    }
    sqlx::query(DELETE_OF).bind(conversation.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

async fn read(conn: &mut Conn, statement: &'static str, id: &DeliveryId) -> Result<DeliveryRecord, StoreError> {
    let row = sqlx::query(statement).bind(id.as_str()).fetch_optional(conn).await.map_err(map)?;
    delivery(&row.ok_or_else(|| not_found("delivery", id))?)
}

impl Backend {
    /// One change of one delivery, whose row is taken first.
    async fn change_delivery(
        &self,
        id: &DeliveryId,
        change: impl FnOnce(&mut DeliveryRecord, i64) -> Result<bool, StoreError> + Send,
    ) -> Result<DeliveryRecord, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let mut record = read(tx.conn(), TAKE, id).await?;
        if change(&mut record, now)? {
            save(tx.conn(), &record).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        Ok(record)
    }

    /// Works through a chat until something of it can be sent, or nothing more can be done. Says what is to be sent, and
    /// notes in `changed` whether it wrote anything.
    async fn claim_in_chat(
        &self,
        tx: &mut WriteTx,
        request: &DeliveryRequest,
        chat: &str,
        now: i64,
        changed: &mut bool,
    ) -> Result<Option<DeliveryClaim>, StoreError> {
        sqlx::query(TAKE_LANE)
            .bind(text_in(&request.account))
            .bind(text_in(chat))
            .execute(tx.conn())
            .await
            .map_err(map)?;
        loop {
            let head = sqlx::query(HEAD).bind(text_in(&request.account)).bind(text_in(chat)).bind(resends(request));
            let head = head.fetch_optional(tx.conn()).await.map_err(map)?;
            let Some(head) = head.as_ref().map(delivery).transpose()? else { return Ok(None) };
            // Who confirms, fails or decides it holds its row and not the lane: what the look saw may be over.
            let taken = sqlx::query(TAKE).bind(head.id.as_str()).fetch_optional(tx.conn()).await.map_err(map)?;
            let Some(mut head) = taken.as_ref().map(delivery).transpose()? else { continue };
            let is_passed = head.state == DeliveryState::Ambiguous && request.ambiguous != AmbiguousPolicy::Resend;
            if !head.state.is_open() || is_passed {
                continue;
            }
            let is_gone = match &head.owner {
                Some(owner) if head.state == DeliveryState::Attempting && !head.is_overdue(now) => {
                    self.is_gone(tx.conn(), owner, now).await?
                }
                _ => false,
            };
            let step = head.step(now, is_gone);
            let fence = match step {
                Step::Leave => return Ok(None),
                Step::Lose => head.lose().map(|()| None)?,
                Step::Abandon(why) => head.abandon(why, now).map(|()| None)?,
                Step::Take => Some(head.begin(request, now)?),
            };
            save(tx.conn(), &head).await?;
            *changed = true;
            if let Some(fence) = fence {
                return Ok(Some(DeliveryClaim::Send { fence, delivery: Box::new(head) }));
            }
        }
    }
}

fn resends(request: &DeliveryRequest) -> i64 {
    i64::from(request.ambiguous == AmbiguousPolicy::Resend)
}

#[async_trait]
impl DeliveryStore for Backend {
    async fn record_deliveries(
        &self,
        fence: &Fence,
        turn: &TurnId,
        deliveries: Vec<NewDelivery>,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        deliveries.iter().try_for_each(NewDelivery::check)?;
        let mut tx = self.write().await?;
        let now = tx.now();
        self.fence(&mut tx, fence, Some(turn), Touch::quiet(now, false)).await?;
        let conversation = fence.conversation();
        let mut records = Vec::with_capacity(deliveries.len());
        for new in deliveries {
            let id = new.id(conversation, turn)?;
            records.push(new.into_record(id, conversation, turn, now));
        }
        // Chats are taken in the order of their names, as everywhere.
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.sort_by_key(|&at| (&records[at].target.account, &records[at].target.chat));
        for at in order {
            if owe(tx.conn(), &records[at]).await? {
                continue;
            }
            let known = read(tx.conn(), ONE, &records[at].id).await?;
            if known.content != records[at].content || known.reply_to != records[at].reply_to {
                return Err(conflict("delivery", &known.id));
            }
            records[at] = known;
        }
        let open: i64 =
            sqlx::query_scalar(COUNT_OPEN).bind(conversation.as_str()).fetch_one(tx.conn()).await.map_err(map)?;
        if open > size(SEND_OPEN_MAX) {
            return Err(StoreError::Limit {
                what: "the number of open deliveries of a conversation",
                limit: SEND_OPEN_MAX as u64,
            });
        }
        tx.commit().await?;
        Ok(records)
    }

    async fn claim_delivery(&self, request: DeliveryRequest) -> Result<DeliveryClaim, StoreError> {
        request.check()?;
        let mut tx = self.write().await?;
        let mut now = tx.now();
        let chats = sqlx::query(CHATS)
            .bind(text_in(&request.account))
            .bind(resends(&request))
            .bind(now)
            .bind(now.saturating_add(ms(SEND_RETRY_AFTER_MAX_MS)))
            .bind(now.saturating_sub(ms(SEND_STALE_MS)))
            .bind(size(SEND_LOOK_MAX))
            .fetch_all(tx.conn())
            .await
            .map_err(map)?;
        let mut changed = false;
        for (number, chat) in chats.iter().enumerate() {
            if number > 0 {
                // No claim holds two chats: their order here is not that in which a turn takes them.
                match changed {
                    true => tx.commit().await?,
                    false => tx.rollback().await?,
                }
                tx = self.write().await?;
                (now, changed) = (tx.now(), false);
            }
            let chat = text(chat, 0)?;
            if let Some(found) = self.claim_in_chat(&mut tx, &request, &chat, now, &mut changed).await? {
                tx.commit().await?;
                return Ok(found);
            }
        }
        let next = sqlx::query_scalar(NEXT_CHANGE).bind(text_in(&request.account)).fetch_one(tx.conn()).await;
        let next_at_ms: Option<i64> = next.map_err(map)?;
        match changed {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(DeliveryClaim::Idle { next_at_ms })
    }

    async fn confirm_part(
        &self,
        fence: &DeliveryFence,
        index: usize,
        platform_id: &str,
        lease_ms: u64,
    ) -> Result<(), StoreError> {
        let part = |d: &mut DeliveryRecord, now| d.confirm_part(fence, index, platform_id, lease_ms, now);
        self.change_delivery(fence.delivery(), part).await?;
        Ok(())
    }

    async fn confirm_delivery(&self, fence: &DeliveryFence) -> Result<(), StoreError> {
        self.change_delivery(fence.delivery(), |d, now| d.confirm(fence, now)).await?;
        Ok(())
    }

    async fn fail_delivery(&self, fence: &DeliveryFence, error: &str, retry: RetryAfter) -> Result<(), StoreError> {
        self.change_delivery(fence.delivery(), |d, now| d.fail(fence, error, retry, now)).await?;
        Ok(())
    }

    async fn decide_delivery(
        &self,
        id: &DeliveryId,
        attempt: i64,
        decision: DeliveryDecision,
    ) -> Result<DeliveryRecord, StoreError> {
        self.change_delivery(id, |d, now| d.decide(attempt, &decision, now)).await
    }

    async fn delivery(&self, id: &DeliveryId) -> Result<DeliveryRecord, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        read(&mut conn, ONE, id).await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> Result<Vec<DeliveryRecord>, StoreError> {
        let rows = sqlx::query(LIST)
            .bind(filter.conversation.as_ref().map(ConversationId::as_str))
            .bind(text_in_or_null(filter.account.as_deref()))
            .bind(i64::from(filter.open_only))
            .bind(size(filter.limit.min(SEND_LIST_MAX)))
            .fetch_all(self.readers())
            .await
            .map_err(map)?;
        rows.iter().map(delivery).collect()
    }

    async fn prune_deliveries(&self) -> Result<u64, StoreError> {
        let mut tx = self.write().await?;
        let now = tx.now();
        let stale = now.saturating_sub(ms(SEND_STALE_MS));
        sqlx::query(LOSE_OVERDUE).bind(now).bind(LOST).execute(tx.conn()).await.map_err(map)?;
        sqlx::query(GIVE_UP).bind(stale).bind(now).bind(TOO_OLD).execute(tx.conn()).await.map_err(map)?;
        let old = sqlx::query(PRUNE_OLD).bind(now.saturating_sub(ms(SEND_KEEP_MS))).execute(tx.conn()).await;
        let old = old.map_err(map)?.rows_affected();
        let many = sqlx::query(PRUNE_MANY).bind(size(SEND_KEEP_ROWS)).execute(tx.conn()).await;
        let many = many.map_err(map)?.rows_affected();
        tx.commit().await?;
        Ok(old + many)
    }
}
