//! Bundles in the in-memory model.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Call, Conv, Digest, Life, Row, State};
use crate::error::StoreError;
use crate::ids::{ConversationId, SessionId};
use crate::limits::{EXPORT_LIST_MAX, EXPORT_PAGE_ROWS};
use crate::round::JournalState;
use crate::rules::invalid;
use crate::session::{ConversationFlags, SessionRecord};
use crate::transfer::bundle::{
    BundleAnswer, BundleCall, BundleConversation, BundleEnd, BundlePart, BundlePrompt, BundleRow, BundleSession,
    BundleSidecar, BundleSource, Exact, ExportCursor, ExportPage, ImportKey, ImportOutcome,
};
use crate::transfer::{Intake, Placed, PlacedRow, Totals, TransferStore};

/// What only imports write.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// (source, id there) to (conversation, fingerprint).
    keys: BTreeMap<(String, String), (ConversationId, String)>,
    origins: BTreeMap<ConversationId, serde_json::Value>,
}

impl Imports {
    /// Forgets a conversation that is deleted.
    pub(super) fn forget(&mut self, id: &ConversationId) {
        self.keys.retain(|_, (conversation, _)| conversation != id);
        self.origins.remove(id);
    }
}

/// A whole bundle, checked.
struct Whole {
    head: BundleConversation,
    placed: Vec<Placed>,
    totals: Totals,
}

impl State {
    /// What of a bundle is in use already.
    fn taken(&self, placed: &[Placed]) -> Option<String> {
        placed.iter().find_map(|one| match one {
            Placed::Session { session, .. } if self.sessions.contains_key(&session.id) => {
                Some(format!("session {}", session.id))
            }
            Placed::Row(row) => {
                let new = &row.new.id;
                if self.rows.contains_key(new) || self.calls.result_is(new) {
                    return Some(format!("message {new}"));
                }
                let call = row.calls.iter().find(|call| self.calls.contains_key(&call.call));
                call.map(|call| format!("call {}", call.call))
            }
            _ => None,
        })
    }

    fn place(&mut self, conversation: &ConversationId, row: PlacedRow) {
        for (result_seq, call) in (row.seq + 1..).zip(&row.calls) {
            self.calls.insert(
                call.call.clone(),
                Call {
                    conversation: conversation.clone(),
                    turn: row.turn.clone(),
                    assistant: row.new.id.clone(),
                    new: call.clone(),
                    result_seq,
                    state: JournalState::Recorded,
                    outcome: None,
                    digest: None,
                    written_ms: row.created_ms,
                },
            );
        }
        if let Some(answer) = row.answers.as_ref().filter(|_| row.copy_of.is_none())
            && let Some(call) = self.calls.get_mut(&answer.call)
        {
            call.state = JournalState::Settled;
            call.outcome = Some(answer.outcome);
            call.digest = Some(Digest::of(&row.digest));
        }
        self.insert(Row {
            conversation: conversation.clone(),
            session: row.session,
            turn: row.turn,
            seq: row.seq,
            digest: Digest::of(&row.digest),
            calls: row.calls.into_iter().map(|call| call.call).collect(),
            answers: row.answers.map(|answer| answer.call),
            created_ms: row.created_ms,
            life: Life { state: row.state, copy_of: row.copy_of, undone: None },
            new: row.new.into(),
        });
    }

    fn import(&mut self, key: &ImportKey, whole: Whole, now: i64) -> ImportOutcome {
        let Whole { head, placed, totals } = whole;
        let id = head.id.clone();
        let mut counters = self.tombstones.get(&id).copied().unwrap_or_default();
        counters.seq = totals.last_seq;
        self.conversations.insert(
            id.clone(),
            Conv {
                profile: head.profile.clone(),
                source: head.source.clone(),
                title: head.title.clone(),
                title_source: head.title_source,
                preview: totals.preview.clone(),
                tip: Some(totals.tip.clone()),
                open_turn: None,
                revision: 1,
                counters,
                lease: None,
                freed_ms: now,
                created_ms: head.created_at_ms,
                activity_ms: head.last_activity_ms,
                origin: None,
                flags: ConversationFlags {
                    archived: head.archived,
                    pinned: head.pinned,
                    hidden: head.hidden,
                    ..ConversationFlags::default()
                },
                ended: None,
            },
        );
        for one in placed {
            match one {
                Placed::Prompt(prompt) => {
                    self.prompts.insert(prompt.hash().as_str().to_owned(), prompt.bytes().clone());
                }
                Placed::Session { session, parent } => {
                    let is_tip = session.id == totals.tip;
                    let record = SessionRecord {
                        conversation: id.clone(),
                        parent,
                        provider: session.provider,
                        model: session.model,
                        cwd: session.cwd,
                        prompt: session.prompt,
                        tools: session.tools,
                        started_at_ms: session.started_at_ms,
                        ended_at_ms: session.ended_at_ms.filter(|_| !is_tip),
                        end_reason: session.end_reason.filter(|_| !is_tip),
                        id: session.id,
                    };
                    self.sessions.insert(record.id.clone(), record);
                }
                Placed::Row(row) => self.place(&id, *row),
                Placed::Usage { totals, .. } => self.usage.add(&id, &totals),
                Placed::Conversation(_) | Placed::SessionStarts { .. } | Placed::End(_) => {}
            }
        }
        for alias in &head.aliases {
            self.aliases.entry(alias.clone()).or_insert_with(|| id.clone());
        }
        let place = (key.source.clone(), key.id.clone());
        self.imports.keys.insert(place, (id.clone(), key.fingerprint.clone()));
        if let Some(origin) = head.origin {
            self.imports.origins.insert(id.clone(), origin);
        }
        ImportOutcome::Imported { conversation: id, rows: totals.rows, added: totals.added }
    }

    fn export_head(&self, id: &ConversationId) -> Result<Vec<BundlePart>, StoreError> {
        let conv = self.conv(id)?;
        let mut parts = vec![BundlePart::Conversation(Box::new(BundleConversation {
            id: id.clone(),
            profile: conv.profile.clone(),
            source: conv.source.clone(),
            title: conv.title.clone(),
            title_source: conv.title_source,
            preview: conv.preview.clone(),
            archived: conv.flags.archived,
            pinned: conv.flags.pinned,
            hidden: conv.flags.hidden,
            created_at_ms: conv.created_ms,
            last_activity_ms: conv.activity_ms,
            aliases: self.aliases.iter().filter(|(_, of)| *of == id).map(|(name, _)| name.clone()).collect(),
            origin: self.imports.origins.get(id).cloned(),
        }))];
        let mut sessions = Vec::new();
        let mut next = conv.tip.clone();
        while let Some(record) = next.and_then(|next: SessionId| self.sessions.get(&next)) {
            next = record.parent.clone();
            sessions.push(record);
        }
        sessions.reverse();
        let mut seen = std::collections::BTreeSet::new();
        for hash in sessions.iter().flat_map(|session| [&session.prompt, &session.tools]) {
            if seen.insert(hash.as_str()) {
                let bytes = self.prompts.get(hash.as_str()).cloned().unwrap_or_default();
                parts.push(BundlePart::Prompt(BundlePrompt { hash: hash.clone(), bytes: Exact(bytes) }));
            }
        }
        parts.extend(sessions.into_iter().map(|record| {
            BundlePart::Session(BundleSession {
                id: record.id.clone(),
                provider: record.provider.clone(),
                model: record.model.clone(),
                cwd: record.cwd.clone(),
                prompt: record.prompt.clone(),
                tools: record.tools.clone(),
                started_at_ms: record.started_at_ms,
                ended_at_ms: record.ended_at_ms,
                end_reason: record.end_reason.clone(),
            })
        }));
        Ok(parts)
    }

    fn bundle_row(&self, row: &Row) -> BundleRow {
        let call = |id| {
            let call = self.calls.get(id)?;
            Some(BundleCall {
                id: call.new.call.clone(),
                result: call.new.result.clone(),
                provider_id: call.new.provider_id.clone(),
                name: call.new.name.clone(),
                arguments: call.new.arguments.clone(),
                replay: call.new.replay,
                open: (call.state != JournalState::Settled).then_some(call.state),
            })
        };
        let answers = row.answers.as_ref().and_then(|call| {
            let outcome = self.calls.get(call)?.outcome?;
            Some(BundleAnswer { call: call.clone(), outcome })
        });
        let is_copy = row.life.copy_of.is_some();
        let message = row.new.message();
        BundleRow {
            id: message.id,
            session: row.session.clone(),
            turn: row.turn.clone(),
            role: message.role,
            kind: message.kind,
            state: row.life.state,
            copy_of: row.life.copy_of.clone(),
            content: message.content,
            api_content: message.api_content.map(|api| Exact(api.0)),
            reasoning: message.reasoning,
            sidecar: message.sidecar.map(|one| BundleSidecar { issuer: one.issuer, bytes: Exact(one.bytes) }),
            finish: message.finish,
            calls: if is_copy { Vec::new() } else { row.calls.iter().filter_map(call).collect() },
            answers,
            meta: message.meta,
            created_at_ms: row.created_ms,
        }
    }
}

#[async_trait]
impl TransferStore for MemoryStore {
    async fn import(&self, key: &ImportKey, source: &mut dyn BundleSource) -> Result<ImportOutcome, StoreError> {
        if let Some((conversation, known)) = self.state().imports.keys.get(&(key.source.clone(), key.id.clone())) {
            let conversation = conversation.clone();
            return Ok(match *known == key.fingerprint {
                true => ImportOutcome::Same { conversation },
                false => ImportOutcome::Changed { conversation },
            });
        }
        let mut intake = Intake::new(0);
        let (mut head, mut placed, mut totals) = (None, Vec::new(), None);
        while let Some(part) = source.next().await? {
            if let BundlePart::Conversation(new) = &part {
                let left = self.state().tombstones.get(&new.id).map_or(0, |left| left.seq);
                intake.start_behind(left);
            }
            for one in intake.take(part)? {
                match one {
                    Placed::Conversation(new) => head = Some(*new),
                    Placed::End(found) => totals = Some(found),
                    other => placed.push(other),
                }
            }
        }
        let (Some(head), Some(totals)) = (head, totals) else {
            return Err(invalid("the conversation has no end; it was cut off"));
        };
        let now = self.now();
        let outcome = {
            let mut state = self.state();
            let taken = match state.conversations.contains_key(&head.id) {
                true => Some(format!("conversation {}", head.id)),
                false => state.taken(&placed),
            };
            match taken {
                Some(what) => ImportOutcome::Taken { what },
                None => state.import(key, Whole { head, placed, totals }, now),
            }
        };
        self.notify();
        Ok(outcome)
    }

    async fn export(
        &self,
        conversation: &ConversationId,
        cursor: Option<ExportCursor>,
    ) -> Result<ExportPage, StoreError> {
        let state = self.state();
        let until_seq = state.conv(conversation)?.counters.seq;
        let (mut parts, mut cursor) = match cursor {
            Some(cursor) => (Vec::new(), cursor),
            None => (state.export_head(conversation)?, ExportCursor { after_seq: 0, until_seq, rows: 0 }),
        };
        let in_page = |row: &&Row| row.seq > cursor.after_seq && row.seq <= cursor.until_seq;
        let rows: Vec<&Row> = state.rows_of(conversation).filter(in_page).take(EXPORT_PAGE_ROWS).collect();
        parts.extend(rows.iter().map(|row| BundlePart::Row(Box::new(state.bundle_row(row)))));
        cursor.rows += rows.len() as u64;
        if rows.len() == EXPORT_PAGE_ROWS {
            cursor.after_seq = rows.last().map_or(cursor.after_seq, |row| row.seq);
            return Ok(ExportPage { parts, next: Some(cursor) });
        }
        parts.extend(state.usage.of(conversation).into_iter().map(BundlePart::Usage));
        parts.push(BundlePart::End(BundleEnd { rows: cursor.rows }));
        Ok(ExportPage { parts, next: None })
    }

    async fn export_list(
        &self,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Vec<ConversationId>, StoreError> {
        let state = self.state();
        let behind = |id: &&ConversationId| after.is_none_or(|after| *id > after);
        Ok(state.conversations.keys().filter(behind).take(limit.min(EXPORT_LIST_MAX)).cloned().collect())
    }

    async fn conversation_named(&self, name: &str) -> Result<Option<ConversationId>, StoreError> {
        let state = self.state();
        let session = SessionId::parse(name).ok().and_then(|id| state.sessions.get(&id));
        let session = session.map(|session| session.conversation.clone());
        Ok(session.or_else(|| state.aliases.get(name).cloned()))
    }
}
