//! Requests about conversations: find, list, show, search, rename, delete.

use hermes_store::limits::SEARCH_STEP_MAX_ROWS;
use hermes_store::{
    ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationFilter, ConversationId, ConversationSummary, Fence, IdSource,
    MessagePage, SearchQuery, Store, StoreError, StoredMessage, TitleSource, UuidIds, View,
};

use crate::compose::Parts;
use crate::protocol::{
    Request, Response, Row, RowCall, RpcError, SessionReindexResponse, SessionResolveParams, SessionResolveResponse,
    SessionShowParams, SessionShowResponse,
};
use crate::service::store_error;

/// Conversations in a list when the client names no number.
const LIST_DEFAULT: usize = 50;
/// Hits of a search when the client names no number.
const SEARCH_DEFAULT: usize = 20;
/// Conversations that a name is looked for among.
const RESOLVE_MAX: usize = 50;
/// Life of a lease that is taken for one edit, in milliseconds.
const EDIT_LEASE_MS: u64 = 30_000;

/// Answers a request about conversations.
pub(crate) async fn answer(parts: &Parts, request: Request) -> Result<Response, RpcError> {
    let store = parts.store().await?;
    let profile = parts.profile();
    let failed = |error: StoreError| store_error(&error);
    match request {
        Request::SessionResolve(params) => resolve(store.as_ref(), profile, params).await,
        Request::SessionList(params) => {
            let limit = if params.limit == 0 { LIST_DEFAULT } else { params.limit };
            let filter = ConversationFilter { limit, before_ms: params.before_ms, ..of_profile(profile) };
            store.conversations(filter).await.map(Response::Sessions).map_err(failed)
        }
        Request::SessionShow(params) => show(store.as_ref(), params).await,
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
    ConversationFilter { profile: Some(profile.to_owned()), ..ConversationFilter::default() }
}

fn not_found(name: &str) -> RpcError {
    RpcError {
        code: "HM1003".to_owned(),
        message: format!("no session has the id or title {name:?}; `hermes sessions list` shows what there is"),
        usage: true,
    }
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
async fn resolve(store: &dyn Store, profile: &str, params: SessionResolveParams) -> Result<Response, RpcError> {
    let failed = |error: StoreError| store_error(&error);
    let answer = |session, note| Ok(Response::SessionResolved(SessionResolveResponse { session, note }));
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
    if ConversationId::parse(&name).is_ok() {
        let filter = ConversationFilter { limit: RESOLVE_MAX, id_prefix: Some(name.clone()), ..of_profile(profile) };
        let mut found = store.conversations(filter).await.map_err(failed)?;
        if let Some(exact) = found.iter().position(|session| session.id.as_str() == name) {
            return answer(found.swap_remove(exact), None);
        }
        match found.len() {
            0 => {}
            1 => return answer(found.swap_remove(0), None),
            _ => return Err(ambiguous(&name, &found)),
        }
    }
    let filter = ConversationFilter { limit: RESOLVE_MAX, title: Some(name.clone()), ..of_profile(profile) };
    let mut titled = store.conversations(filter).await.map_err(failed)?;
    if titled.is_empty() {
        return Err(not_found(&name));
    }
    let note = (titled.len() > 1).then(|| {
        format!(
            "{} sessions have this title; the one with the newest activity was taken ({})",
            titled.len(),
            titled[0].id
        )
    });
    answer(titled.swap_remove(0), note)
}

fn ambiguous(name: &str, found: &[ConversationSummary]) -> RpcError {
    let ids: Vec<&str> = found.iter().take(5).map(|session| session.id.as_str()).collect();
    RpcError {
        code: "HM0205".to_owned(),
        message: format!(
            "{} session ids begin with {name:?}; write more of it (such as {})",
            found.len(),
            ids.join(", ")
        ),
        usage: true,
    }
}

async fn show(store: &dyn Store, params: SessionShowParams) -> Result<Response, RpcError> {
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
    Ok(Response::Session(Box::new(SessionShowResponse { session, rows, usage })))
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
