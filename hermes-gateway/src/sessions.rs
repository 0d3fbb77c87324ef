//! Requests about conversations: find, list, show, search, rename, delete.

use hermes_core::{Rewinder, Undone};
use hermes_store::limits::SEARCH_STEP_MAX_ROWS;
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationFilter, ConversationId, ConversationSummary, Fence,
    FlagChange, IdSource, MessagePage, NewBranch, NewConversation, PruneRules, Resolved, ResolvedBy, SearchQuery,
    Store, StoreError, StoredMessage, TitleSource, UuidIds, View,
};

use crate::compose::Parts;
use crate::models;
use crate::protocol::{
    Request, Response, Row, RowCall, RpcError, SessionReindexResponse, SessionResolveParams, SessionResolveResponse,
    SessionShowParams, SessionShowResponse, SessionUndoResponse,
};
use crate::service::store_error;

/// Conversations in a list when the client names no number.
const LIST_DEFAULT: usize = 50;
/// Hits of a search when the client names no number.
const SEARCH_DEFAULT: usize = 20;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Life of a lease that is taken for one edit, in milliseconds.
const EDIT_LEASE_MS: u64 = 30_000;

/// Answers a request about conversations.
pub(crate) async fn answer(parts: &Parts, request: Request) -> Result<Response, RpcError> {
    let store = parts.store().await?;
    let profile = parts.profile();
    let failed = |error: StoreError| store_error(&error);
    match request {
        Request::SessionResolve(params) => {
            resolve(store.as_ref(), profile, params).await.map(Response::SessionResolved)
        }
        Request::SessionList(params) => {
            let limit = if params.limit == 0 { LIST_DEFAULT } else { params.limit };
            let filter = ConversationFilter {
                limit,
                before_ms: params.before_ms,
                archived: if params.archived { None } else { Some(false) },
                ..of_profile(profile)
            };
            store.conversations(filter).await.map(Response::Sessions).map_err(failed)
        }
        Request::SessionShow(params) => show(parts, store.as_ref(), params).await,
        Request::SessionSearch(params) => {
            let limit = if params.limit == 0 { SEARCH_DEFAULT } else { params.limit };
            let query = SearchQuery {
                profile: Some(profile.to_owned()),
                source: params.source,
                role: params.role,
                conversation: params.conversation,
                since_ms: params.since_ms,
                until_ms: params.until_ms,
                include_archived: params.archived,
                include_hidden: params.children,
                order: params.order,
                neighbours: params.neighbours,
                limit,
                cursor: params.cursor,
                ..SearchQuery::text(params.query)
            };
            store.search(query).await.map(Response::Found).map_err(failed)
        }
        Request::SessionReindex(params) => {
            if params.begin {
                store.rebuild_index().await.map_err(failed)?;
            }
            let is_done = store.index_step(SEARCH_STEP_MAX_ROWS).await.map_err(failed)?.is_done;
            let status = store.index_status().await.map_err(failed)?;
            Ok(Response::Reindexed(SessionReindexResponse { status, is_done }))
        }
        Request::SessionRename(params) => {
            let fence = edit(parts, store.as_ref(), &params.conversation).await?;
            let renamed = store.set_title(&fence, &params.title, TitleSource::User).await;
            store.release(&fence).await.map_err(failed)?;
            Ok(Response::Renamed { title: renamed.map_err(failed)? })
        }
        Request::SessionFlags(params) => {
            let fence = edit(parts, store.as_ref(), &params.conversation).await?;
            let change = FlagChange { archived: params.archived, pinned: params.pinned, hidden: None };
            let done = store.set_flags(&fence, change).await;
            store.release(&fence).await.map_err(failed)?;
            done.map(Response::Flagged).map_err(failed)
        }
        Request::SessionUndo(params) => {
            let fence = edit(parts, store.as_ref(), &params.conversation).await?;
            let done = rewinder(parts, store.as_ref(), &fence).undo(params.turns).await;
            store.release(&fence).await.map_err(failed)?;
            let told = |done: Undone| Response::Undone(SessionUndoResponse { rows: done.change.rows, text: done.text });
            done.map(told).map_err(failed)
        }
        Request::SessionRedo(params) => {
            let fence = edit(parts, store.as_ref(), &params.conversation).await?;
            let done = rewinder(parts, store.as_ref(), &fence).redo().await;
            store.release(&fence).await.map_err(failed)?;
            done.map(|change| Response::Redone { rows: change.rows }).map_err(failed)
        }
        Request::SessionBranch(params) => {
            let from = store.conversation(&params.conversation).await.map_err(failed)?;
            let ids: &dyn IdSource = &UuidIds;
            let id = ids.conversation();
            let conversation =
                NewConversation { id: id.clone(), profile: from.profile, source: from.source, title: params.title };
            let branch = NewBranch { conversation, from: params.conversation, view: View::Model, up_to: None };
            store.branch(branch).await.map_err(failed)?;
            Ok(Response::Branched { conversation: id })
        }
        Request::SessionPrune(params) => {
            let rules = PruneRules {
                idle_ms: params.days.map_or(PruneRules::default().idle_ms, |days| u64::from(days) * DAY_MS),
                every_ms: 0,
                dry_run: params.dry_run,
                ..PruneRules::default()
            };
            store.prune(rules).await.map(Response::Pruned).map_err(failed)
        }
        Request::SessionDelete(params) => {
            let fence = edit(parts, store.as_ref(), &params.conversation).await?;
            let deleted = store.delete_conversation(&fence).await;
            if deleted.is_err() {
                store.release(&fence).await.map_err(failed)?;
            }
            deleted.map(|()| Response::Deleted).map_err(failed)
        }
        other => Err(RpcError {
            code: "HM0203".to_owned(),
            message: format!("this gateway does not know the request {other:?}"),
            usage: true,
        }),
    }
}

fn of_profile(profile: &str) -> ConversationFilter {
    // Hidden ones, such as children that were given a task, are opened by their id.
    ConversationFilter { profile: Some(profile.to_owned()), hidden: Some(false), ..ConversationFilter::default() }
}

fn not_found(name: &str) -> RpcError {
    RpcError {
        code: "HM1003".to_owned(),
        message: format!("no session has the id or title {name:?}; `hermes sessions list` shows what there is"),
        usage: true,
    }
}

/// The end of a session in the hands of this gateway.
fn rewinder<'a>(parts: &'a Parts, store: &'a dyn Store, fence: &'a Fence) -> Rewinder<'a> {
    Rewinder { store, clock: parts.clock(), ids: &UuidIds, fence }
}

/// A lease for one edit. A conversation with a turn at work is not edited under it.
async fn edit(parts: &Parts, store: &dyn Store, conversation: &ConversationId) -> Result<Fence, RpcError> {
    let owner = parts.owner().await?;
    store.heartbeat(owner).await.map_err(|error| store_error(&error))?;
    let ids: &dyn IdSource = &UuidIds;
    let request = ClaimRequest {
        conversation: conversation.clone(),
        owner: owner.id.clone(),
        turn: ids.turn(),
        ttl_ms: EDIT_LEASE_MS,
        policy: ClaimPolicy::LeaseOnly,
    };
    match store.claim(request).await.map_err(|error| store_error(&error))? {
        ClaimOutcome::Leased { fence } => Ok(fence),
        ClaimOutcome::Recover { fence, .. } => {
            store.release(&fence).await.map_err(|error| store_error(&error))?;
            Err(RpcError {
                code: "HM0204".to_owned(),
                message: "a turn of this session was interrupted by a crash; resume it first (hermes --resume ID)"
                    .to_owned(),
                usage: false,
            })
        }
        _ => Err(store_error(&StoreError::InUse)),
    }
}

/// Finds a conversation: the last one, or by id, unique beginning of an id, or title.
async fn resolve(
    store: &dyn Store,
    profile: &str,
    params: SessionResolveParams,
) -> Result<SessionResolveResponse, RpcError> {
    let failed = |error: StoreError| store_error(&error);
    let answer = |session, note| Ok(SessionResolveResponse { session, note });
    let Some(name) = params.name else {
        let filter = ConversationFilter { limit: 1, ..of_profile(profile) };
        let last = store.conversations(filter).await.map_err(failed)?.pop();
        return match last {
            Some(session) => answer(session, None),
            None => Err(RpcError {
                code: "HM1003".to_owned(),
                message: "there is no session yet; begin one without --continue".to_owned(),
                usage: true,
            }),
        };
    };
    let (by, candidates) = match store.resolve(&name, Some(profile)).await.map_err(failed)? {
        Resolved::One { found, .. } => return answer(*found, None),
        Resolved::Nothing => return Err(not_found(&name)),
        Resolved::Many { by, candidates } => (by, candidates),
    };
    let mut candidates = candidates.into_iter();
    match candidates.next() {
        // Of several titles the newest is opened, but never changed or removed.
        Some(first) if by == ResolvedBy::Title && !params.exact => {
            let note = format!(
                "{} sessions have this title; the one with the newest activity was taken ({})",
                candidates.len() + 1,
                first.id
            );
            answer(first, Some(note))
        }
        first => Err(ambiguous(&name, &first.into_iter().chain(candidates).collect::<Vec<_>>())),
    }
}

fn ambiguous(name: &str, found: &[ConversationSummary]) -> RpcError {
    let ids: Vec<&str> = found.iter().take(5).map(|session| session.id.as_str()).collect();
    RpcError {
        code: "HM0205".to_owned(),
        message: format!(
            "{} sessions are meant by {name:?}; say which by its id (such as {})",
            found.len(),
            ids.join(", ")
        ),
        usage: true,
    }
}

async fn show(parts: &Parts, store: &dyn Store, params: SessionShowParams) -> Result<Response, RpcError> {
    let failed = |error: StoreError| store_error(&error);
    let session = store.conversation(&params.conversation).await.map_err(failed)?;
    let page = MessagePage {
        after_seq: params.after_seq,
        limit: if params.limit == 0 { MessagePage::default().limit } else { params.limit },
        from_end: params.limit != 0,
    };
    let rows = store.messages(&params.conversation, View::Display, page).await.map_err(failed)?;
    let usage = store.usage(&params.conversation).await.map_err(failed)?;
    let rows = rows.into_iter().map(row).collect();
    let costs = models::costs(parts, &usage).await;
    Ok(Response::Session(Box::new(SessionShowResponse { session, rows, usage, costs })))
}

fn row(stored: StoredMessage) -> Row {
    let answers = stored.answers;
    Row {
        seq: stored.seq,
        id: stored.id.as_str().to_owned(),
        role: stored.role.as_str().to_owned(),
        kind: stored.kind.as_str().to_owned(),
        content: stored.content,
        calls: stored
            .calls
            .into_iter()
            .map(|call| RowCall { call: call.call.as_str().to_owned(), name: call.name, arguments: call.arguments })
            .collect(),
        tool: answers.as_ref().map(|call| call.name.clone()),
        outcome: answers.as_ref().and_then(|call| call.outcome).map(|outcome| outcome.as_str().to_owned()),
        call: answers.map(|call| call.call.as_str().to_owned()),
        created_at_ms: stored.created_at_ms,
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
