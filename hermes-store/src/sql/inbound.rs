//! What comes in.

use async_trait::async_trait;

use super::admissions::{admit_within, create};
use super::driver::{Backend, Conn, Row, locked, map, text_in};
use super::leases::take;
use super::read::{col, id, size, text, text_in_or_null, text_or_null, word, word_or_null};
use super::schema::Group;
use crate::admission::{AdmissionOutcome, AdmissionStatus, AdmitOutcome, NewAdmission, Receipt};
use crate::delivery::Target;
use crate::error::StoreError;
use crate::ids::{AdmissionId, ConversationId, Generation, TurnId};
use crate::inbound::{
    Inbound, InboundKey, InboundReceipt, InboundStore, MessageRef, ReceiveOutcome, Reply, Route, RouteKey,
    RouteOutcome, check_command,
};
use crate::limits::{INBOUND_KEEP_MS, PRUNE_MAX_ROWS};
use crate::rules::{conflict, invalid, ms, not_found};
use crate::session::NewConversation;

/// A receipt is found by the digest of its key: keys may be too long for an index. It outlives its conversation, and so
/// refers to nothing; what its admission came to is written into it when the conversation is deleted. A route's counter
/// (`generation`) may be ahead of the generation that set it.
pub(crate) const TABLES: Group = &[
    "CREATE TABLE inbound_receipts (
        id TEXT PRIMARY KEY NOT NULL,
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        ref_kind TEXT NOT NULL,
        ref_id TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        admission_id TEXT,
        seq BIGINT,
        outcome TEXT,
        generation BIGINT,
        turn_id TEXT,
        digest TEXT NOT NULL,
        last_digest TEXT NOT NULL,
        edits BIGINT NOT NULL,
        received_ms BIGINT NOT NULL
    )",
    "CREATE INDEX inbound_by_conversation ON inbound_receipts (conversation_id)",
    "CREATE INDEX inbound_by_age ON inbound_receipts (received_ms)",
    "CREATE TABLE replies (
        admission_id TEXT NOT NULL REFERENCES admissions (id),
        conversation_id TEXT NOT NULL,
        account TEXT NOT NULL,
        chat TEXT NOT NULL,
        thread TEXT NOT NULL,
        reply_to TEXT,
        PRIMARY KEY (admission_id, account, chat, thread)
    )",
    "CREATE INDEX replies_by_conversation ON replies (conversation_id)",
    "ALTER TABLE routes ADD COLUMN conversation_id TEXT REFERENCES conversations (id)",
    "ALTER TABLE routes ADD COLUMN set_generation BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX routes_by_conversation ON routes (conversation_id)",
];

const INSERT: &str = "INSERT INTO inbound_receipts (id, account, chat, ref_kind, ref_id, conversation_id, \
     admission_id, digest, last_digest, edits, received_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, 0, $9) \
     ON CONFLICT (id) DO NOTHING";
const INSERT_REPLY: &str = "INSERT INTO replies (admission_id, conversation_id, account, chat, thread, reply_to) \
     VALUES ($1, $2, $3, $4, $5, $6)";
/// Counts an edit that was not told yet.
const EDIT: &str = "UPDATE inbound_receipts SET edits = edits + 1, last_digest = $2 \
     WHERE id = $1 AND digest <> $2 AND last_digest <> $2";
const RECEIPT: &str = "SELECT r.account, r.chat, r.ref_kind, r.ref_id, r.conversation_id, r.edits, r.received_ms, \
     r.admission_id, COALESCE(a.seq, r.seq), COALESCE(a.status, 'terminal'), COALESCE(a.outcome, r.outcome), \
     COALESCE(a.generation, r.generation), COALESCE(a.turn_id, r.turn_id), r.digest FROM inbound_receipts r \
     LEFT JOIN admissions a ON a.id = r.admission_id WHERE r.id = $1";
const PRUNE: &str = concat!(
    "DELETE FROM inbound_receipts WHERE id IN (SELECT id FROM inbound_receipts WHERE id IN (SELECT r.id \
     FROM inbound_receipts r LEFT JOIN admissions a ON a.id = r.admission_id LEFT JOIN turns t ON t.id = a.turn_id \
     WHERE r.received_ms <= $1 AND (a.id IS NULL OR (a.status = 'terminal' AND (t.id IS NULL OR \
     t.status <> 'running'))) ORDER BY r.received_ms, r.id LIMIT $2) ORDER BY id",
    locked!(),
    ")"
);
/// What was owed for inputs that were taken back.
const PRUNE_REPLIES: &str = concat!(
    "DELETE FROM replies WHERE admission_id IN (SELECT admission_id FROM replies WHERE EXISTS (SELECT 1 FROM admissions a \
     WHERE a.id = replies.admission_id AND a.status = 'terminal' AND a.turn_id IS NULL) ORDER BY admission_id",
    locked!(),
    ")"
);

/// Takes the row of a route, which puts its writers in a line; makes it when it is new.
const TAKE_ROUTE: &str = "INSERT INTO routes (source, route_key, generation) VALUES ($1, $2, \
     COALESCE((SELECT MAX(generation) FROM tombstones WHERE id = '*'), 0)) \
     ON CONFLICT (source, route_key) DO UPDATE SET generation = routes.generation \
     RETURNING conversation_id, set_generation, generation";
const ROUTE: &str = "SELECT conversation_id, set_generation FROM routes WHERE source = $1 AND route_key = $2";
const MOVE_ROUTE: &str = "UPDATE routes SET generation = generation + 1, set_generation = generation + 1, \
     conversation_id = $3 WHERE source = $1 AND route_key = $2 RETURNING conversation_id, set_generation";
const SET_ROUTE: &str = "UPDATE routes SET set_generation = $4, conversation_id = $3 \
     WHERE source = $1 AND route_key = $2 RETURNING conversation_id, set_generation";

const REPLIES: &str = "SELECT r.admission_id, r.account, r.chat, r.thread, r.reply_to FROM replies r \
     JOIN admissions a ON a.id = r.admission_id WHERE r.conversation_id = $1 AND a.turn_id = $2 ORDER BY a.seq";
const DELETE_REPLIES: &str = "DELETE FROM replies WHERE admission_id = $1";

/// Before the conversation's own row is taken: routes are always taken first.
const LEAVE_ROUTES: &str = "UPDATE routes SET conversation_id = NULL WHERE conversation_id = $1";
/// Writes into the receipts of a conversation what became of its admissions, which are about to be deleted.
const LEAVE_RECEIPTS: &str = "UPDATE inbound_receipts SET \
     seq = (SELECT a.seq FROM admissions a WHERE a.id = inbound_receipts.admission_id), \
     outcome = (SELECT a.outcome FROM admissions a WHERE a.id = inbound_receipts.admission_id), \
     generation = (SELECT a.generation FROM admissions a WHERE a.id = inbound_receipts.admission_id), \
     turn_id = (SELECT a.turn_id FROM admissions a WHERE a.id = inbound_receipts.admission_id) \
     WHERE conversation_id = $1 AND EXISTS (SELECT 1 FROM admissions a WHERE a.id = inbound_receipts.admission_id)";
const DELETE_OWED: &str = "DELETE FROM replies WHERE conversation_id = $1";

/// The chats that are owed the answer of a turn, each once, in the order of their names (in which they are taken);
/// nothing is owed afterwards.
pub(super) async fn take_replies(
    conn: &mut Conn,
    conversation: &ConversationId,
    turn: &TurnId,
) -> Result<Vec<Reply>, StoreError> {
    let owed = sqlx::query(REPLIES).bind(conversation.as_str()).bind(turn.as_str()).fetch_all(&mut *conn).await;
    let owed = owed.map_err(map)?;
    let mut out = std::collections::BTreeMap::new();
    let mut inputs = std::collections::BTreeSet::new();
    for row in &owed {
        inputs.insert(col::<String>(row, 0)?);
        let target = Target { account: text(row, 1)?, chat: text(row, 2)?, thread: text(row, 3)? };
        let reply = Reply { target: target.clone(), reply_to: text_or_null(row, 4)? };
        out.entry(target).or_insert(reply);
    }
    for input in inputs {
        sqlx::query(DELETE_REPLIES).bind(input).execute(&mut *conn).await.map_err(map)?;
    }
    Ok(out.into_values().collect())
}

/// A conversation is about to be deleted: its routes lead nowhere.
pub(super) async fn leave_routes(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    sqlx::query(LEAVE_ROUTES).bind(conversation.as_str()).execute(conn).await.map_err(map)?;
    Ok(())
}

/// A conversation is about to be deleted: its receipts stay, and say what became of its admissions.
pub(super) async fn leave_receipts(conn: &mut Conn, conversation: &ConversationId) -> Result<(), StoreError> {
    for statement in [LEAVE_RECEIPTS, DELETE_OWED] {
        sqlx::query(statement).bind(conversation.as_str()).execute(&mut *conn).await.map_err(map)?;
    }
    Ok(())
}

/// A receipt, and the digest of what was received first.
async fn receipt(conn: &mut Conn, digest: &str) -> Result<Option<(InboundReceipt, String)>, StoreError> {
    let row = sqlx::query(RECEIPT).bind(digest).fetch_optional(conn).await.map_err(map)?;
    let Some(row) = row else { return Ok(None) };
    let reference = text(&row, 3)?;
    let message = word(&row, 2, |kind| MessageRef::from_parts(kind, &reference))?;
    let conversation: ConversationId = word(&row, 4, id(ConversationId::parse))?;
    let admission: Option<AdmissionId> = word_or_null(&row, 7, id(AdmissionId::parse))?;
    let admission = admission.map(|admission| admitted(&row, admission, &conversation)).transpose()?;
    let receipt = InboundReceipt {
        key: InboundKey { account: text(&row, 0)?, chat: text(&row, 1)?, message },
        conversation,
        admission,
        edits: col(&row, 5)?,
        received_at_ms: col(&row, 6)?,
    };
    Ok(Some((receipt, col(&row, 13)?)))
}

fn admitted(row: &Row, admission: AdmissionId, conversation: &ConversationId) -> Result<Receipt, StoreError> {
    Ok(Receipt {
        admission,
        conversation: conversation.clone(),
        seq: col(row, 8)?,
        status: word(row, 9, AdmissionStatus::parse)?,
        outcome: word_or_null(row, 10, AdmissionOutcome::parse)?,
        generation: col::<Option<i64>>(row, 11)?.map(Generation),
        turn: word_or_null(row, 12, id(TurnId::parse))?,
    })
}

/// Inserts a receipt; false when the message was received before.
async fn insert(
    conn: &mut Conn,
    key: &InboundKey,
    admission: Option<&AdmissionId>,
    conversation: &ConversationId,
    content: &str,
    now: i64,
) -> Result<bool, StoreError> {
    let (kind, message) = key.message.parts();
    let done = sqlx::query(INSERT)
        .bind(key.digest(admission))
        .bind(text_in(&key.account))
        .bind(text_in(&key.chat))
        .bind(kind)
        .bind(text_in(message))
        .bind(conversation.as_str())
        .bind(admission.map(AdmissionId::as_str))
        .bind(content)
        .bind(now)
        .execute(conn)
        .await
        .map_err(map)?;
    Ok(done.rows_affected() == 1)
}

fn route(row: &Row, key: &RouteKey) -> Result<Route, StoreError> {
    Ok(Route {
        key: key.clone(),
        conversation: word_or_null(row, 0, id(ConversationId::parse))?,
        generation: Generation(col(row, 1)?),
    })
}

/// Takes a route's row; also returns the newest generation that was handed out.
async fn take_route(conn: &mut Conn, key: &RouteKey) -> Result<(Route, Generation), StoreError> {
    let row = sqlx::query(TAKE_ROUTE)
        .bind(text_in(&key.source))
        .bind(text_in(&key.key))
        .fetch_one(conn)
        .await
        .map_err(map)?;
    Ok((route(&row, key)?, Generation(col(&row, 2)?)))
}

async fn move_route(conn: &mut Conn, key: &RouteKey, to: &ConversationId) -> Result<Route, StoreError> {
    let row = sqlx::query(MOVE_ROUTE)
        .bind(text_in(&key.source))
        .bind(text_in(&key.key))
        .bind(to.as_str())
        .fetch_one(conn)
        .await;
    route(&row.map_err(map)?, key)
}

impl Backend {
    /// Receives a message whose key was there before.
    async fn receive_again(&self, inbound: &Inbound, digest: &str) -> Result<ReceiveOutcome, StoreError> {
        let mut tx = self.write().await?;
        let content = inbound.digest();
        let edited = sqlx::query(EDIT).bind(digest).bind(&content).execute(tx.conn()).await.map_err(map)?;
        let is_new = edited.rows_affected() == 1;
        let known = receipt(tx.conn(), digest).await?;
        let (receipt, first) = known.ok_or_else(|| StoreError::Retryable {
            detail: "the receipt of the message was pruned just now".to_owned(),
        })?;
        match is_new {
            true => tx.commit().await?,
            false => tx.rollback().await?,
        }
        Ok(match first == content {
            true => ReceiveOutcome::Replayed(receipt),
            false => ReceiveOutcome::Edited { receipt, is_new },
        })
    }
}

#[async_trait]
impl InboundStore for Backend {
    async fn receive(
        &self,
        inbound: Inbound,
        conversation: Option<NewConversation>,
        input: NewAdmission,
    ) -> Result<ReceiveOutcome, StoreError> {
        inbound.check(conversation.as_ref(), &input)?;
        let digest = inbound.key.digest(Some(&input.id));
        let mut tx = self.write().await?;
        let now = tx.now();
        let target = input.conversation.clone();
        if !insert(tx.conn(), &inbound.key, Some(&input.id), &target, &inbound.digest(), now).await? {
            tx.rollback().await?;
            return self.receive_again(&inbound, &digest).await;
        }
        let mut new_route = None;
        if let Some((key, seen)) = &inbound.route {
            let (route, _) = take_route(tx.conn(), key).await?;
            let leads_here = route.conversation.as_ref().is_none_or(|to| *to == target);
            if route.generation != *seen || !leads_here {
                tx.rollback().await?;
                return Ok(ReceiveOutcome::Moved(route));
            }
            new_route = route.conversation.is_none().then_some(key);
        }
        if let Some(new) = &conversation {
            create(tx.conn(), new, now).await?;
        }
        // Taken here, an input with the same request id waits until this one is seen.
        take(tx.conn(), &target).await?.ok_or_else(|| not_found("conversation", &target))?;
        let outcome = admit_within(&mut tx, &input, now).await?;
        let is_known = matches!(outcome, AdmitOutcome::Replayed(_));
        let admission = outcome.receipt().clone();
        let receipt = |admission: Receipt| InboundReceipt {
            key: inbound.key.clone(),
            conversation: target.clone(),
            admission: Some(admission),
            edits: 0,
            received_at_ms: now,
        };
        if is_known {
            tx.rollback().await?;
            return Ok(ReceiveOutcome::Replayed(receipt(admission)));
        }
        if let Some(key) = new_route {
            move_route(tx.conn(), key, &target).await?;
        }
        for reply in &inbound.replies {
            sqlx::query(INSERT_REPLY)
                .bind(admission.admission.as_str())
                .bind(target.as_str())
                .bind(text_in(&reply.target.account))
                .bind(text_in(&reply.target.chat))
                .bind(text_in(&reply.target.thread))
                .bind(text_in_or_null(reply.reply_to.as_deref()))
                .execute(tx.conn())
                .await
                .map_err(map)?;
        }
        tx.commit().await?;
        Ok(ReceiveOutcome::Accepted(receipt(admission)))
    }

    async fn inbound(&self, key: &InboundKey) -> Result<Option<InboundReceipt>, StoreError> {
        let mut conn = self.readers().acquire().await.map_err(map)?;
        Ok(receipt(&mut conn, &key.digest(None)).await?.map(|(receipt, _)| receipt))
    }

    async fn prune_inbound(&self) -> Result<u64, StoreError> {
        let mut tx = self.write().await?;
        let before = tx.now().saturating_sub(ms(INBOUND_KEEP_MS));
        let pruned = sqlx::query(PRUNE).bind(before).bind(size(PRUNE_MAX_ROWS)).execute(tx.conn()).await;
        let pruned = pruned.map_err(map)?.rows_affected();
        sqlx::query(PRUNE_REPLIES).execute(tx.conn()).await.map_err(map)?;
        tx.commit().await?;
        Ok(pruned)
    }

    async fn route(&self, key: &RouteKey) -> Result<Route, StoreError> {
        let row =
            sqlx::query(ROUTE).bind(text_in(&key.source)).bind(text_in(&key.key)).fetch_optional(self.readers()).await;
        match row.map_err(map)? {
            Some(row) => route(&row, key),
            None => Ok(Route { key: key.clone(), conversation: None, generation: Generation(0) }),
        }
    }

    async fn set_route(
        &self,
        key: &RouteKey,
        generation: Generation,
        conversation: &ConversationId,
    ) -> Result<RouteOutcome, StoreError> {
        key.check()?;
        let mut tx = self.write().await?;
        let (present, issued) = take_route(tx.conn(), key).await?;
        if generation.0 < 1 || generation > issued {
            return Err(invalid(format!("generation {} of the route was never handed out", generation.0)));
        }
        // Held, so that it is not deleted before the route leads to it.
        take(tx.conn(), conversation).await?.ok_or_else(|| not_found("conversation", conversation))?;
        if present.generation > generation {
            tx.rollback().await?;
            return Ok(RouteOutcome::Stale(present));
        }
        if present.generation == generation {
            if present.conversation.as_ref() != Some(conversation) {
                return Err(conflict("generation of a route", generation.0));
            }
            tx.rollback().await?;
            return Ok(RouteOutcome::Set(present));
        }
        let row = sqlx::query(SET_ROUTE)
            .bind(text_in(&key.source))
            .bind(text_in(&key.key))
            .bind(conversation.as_str())
            .bind(generation.0)
            .fetch_one(tx.conn())
            .await
            .map_err(map)?;
        let set = route(&row, key)?;
        tx.commit().await?;
        Ok(RouteOutcome::Set(set))
    }

    async fn reset_route(
        &self,
        key: &RouteKey,
        seen: Generation,
        conversation: NewConversation,
        by: Option<InboundKey>,
    ) -> Result<RouteOutcome, StoreError> {
        key.check()?;
        check_command(by.as_ref())?;
        let mut tx = self.write().await?;
        let now = tx.now();
        // The receipt first, as every message does: two deliveries of one command wait for each other here.
        let is_fresh = match &by {
            Some(by) => {
                let nothing = crate::PromptHash::of(b"");
                insert(tx.conn(), by, None, &conversation.id, nothing.as_str(), now).await?
            }
            None => true,
        };
        let (present, _) = take_route(tx.conn(), key).await?;
        let outcome = if !is_fresh {
            RouteOutcome::Replayed(present)
        } else if present.conversation.as_ref() == Some(&conversation.id) {
            RouteOutcome::Set(present)
        } else if present.generation != seen {
            RouteOutcome::Stale(present)
        } else {
            create(tx.conn(), &conversation, now).await?;
            let moved = move_route(tx.conn(), key, &conversation.id).await?;
            tx.commit().await?;
            return Ok(RouteOutcome::Set(moved));
        };
        tx.rollback().await?;
        Ok(outcome)
    }
}
