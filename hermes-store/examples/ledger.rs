//! The store without the rest of the program: one input, one turn with one tool call, and what is left of it.
//!
//! `cargo run -p hermes-store --example ledger [FILE]`; without a file it works in a temporary directory.

use std::error::Error;
use std::sync::Arc;

use hermes_store::sqlite::{SqliteOptions, SqliteStore};
use hermes_store::{
    AdmissionOutcome, AdmissionStore, CallOutcome, CallResult, ClaimOutcome, ClaimPolicy, ClaimRequest, ConversationId,
    HostClock, IdSource, Intent, LeaseStore, MessagePage, NewAdmission, NewCall, NewConversation, NewMessage,
    NewSession, OwnerInfo, PromptSnapshot, ReplaySafety, Role, Round, TranscriptStore, TurnEnd, UuidIds, View,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or_else(|| directory.path().join("hermes.db"), Into::into);
    let store = SqliteStore::open(SqliteOptions::new(path, Arc::new(HostClock::new()))).await?;
    let ids: &dyn IdSource = &UuidIds;
    let owner = ids.owner();
    let me = owner.clone();
    let info = tokio::task::spawn_blocking(move || OwnerInfo::of_this_process(me)).await?;
    store.heartbeat(&info).await?;

    // Accepted: durable before anybody is told. The same request id again would give the same receipt.
    let conversation = ids.conversation();
    let new = NewConversation {
        id: conversation.clone(),
        profile: "default".to_owned(),
        source: "example".to_owned(),
        title: Some("A ledger".to_owned()),
    };
    let input = NewAdmission {
        id: ids.admission(),
        conversation: conversation.clone(),
        principal: "reader".to_owned(),
        request_id: "request-1".to_owned(),
        intent: Intent::Queue,
        payload: "which files are here?".to_owned(),
        submitted_by: owner.clone(),
    };
    let receipt = store.create_and_admit(new, input.clone()).await?.receipt().clone();
    println!("accepted {} at place {}", receipt.admission, receipt.seq);

    // Claimed: the lease and the input in one transaction. Every write from here on carries the fence.
    let request = ClaimRequest {
        conversation: conversation.clone(),
        owner: owner.clone(),
        turn: ids.turn(),
        ttl_ms: hermes_store::limits::LEASE_TTL_MS,
        policy: ClaimPolicy::Any,
    };
    let turn = request.turn.clone();
    let ClaimOutcome::Turn { fence, admission, generation } = store.claim(request).await? else {
        return Err("somebody else was faster".into());
    };
    println!("turn {turn} began as start {} with token {}", generation.0, fence.token().0);
    let session = NewSession {
        id: conversation.first_session(),
        parent: None,
        provider: "none".to_owned(),
        model: "none".to_owned(),
        cwd: None,
        prompt: PromptSnapshot::new("You list files.".as_bytes().to_vec()),
        tools: PromptSnapshot::new("[]".as_bytes().to_vec()),
    };
    // The row of an input has the input's id: should this turn be begun again, it is the same row and not a second one.
    let user = NewMessage::text(admission.receipt.admission.input_row(), Role::User, admission.payload);
    store.open_session(&fence, &turn, session, vec![user]).await?;

    // Recorded before it runs, settled after it ran: a crash in between is seen as what it is.
    let call = NewCall {
        call: ids.call(),
        result: ids.message(),
        provider_id: "call_1".to_owned(),
        name: "list_files".to_owned(),
        arguments: "{}".to_owned(),
        replay: ReplaySafety::Pure,
        preset: None,
    };
    let asked = NewMessage::text(ids.message(), Role::Assistant, "");
    let round = store.record_round(&fence, Round::plan(turn.clone(), asked, vec![call], None)).await?;
    let mut proofs = Vec::new();
    for call in round.calls() {
        let result = CallResult { outcome: CallOutcome::Ok, content: "README.md".to_owned(), meta: None };
        proofs.push(store.settle_call(&fence, &turn, &call.new.call, result).await?);
    }
    let settled = round.settle(&proofs)?;
    println!("a round of {} call(s) is settled", settled.calls().len());
    let answer = NewMessage::text(ids.message(), Role::Assistant, "There is one file, README.md.");
    store.append(&fence, &turn, vec![answer], None).await?;
    let end =
        TurnEnd { reason: "completed".to_owned(), detail: None, outcome: AdmissionOutcome::Completed, api_calls: 2 };
    store.settle_turn(&fence, &turn, end, true).await?;

    print_transcript(&store, &conversation).await?;
    // The sender that saw no answer asks again, and nothing runs twice.
    println!("repeated: {:?}", store.admit(input).await?.receipt().status);
    store.retire(&owner).await?;
    store.close().await;
    Ok(())
}

async fn print_transcript(store: &SqliteStore, conversation: &ConversationId) -> Result<(), Box<dyn Error>> {
    for row in store.messages(conversation, View::Display, MessagePage::default()).await? {
        let calls: Vec<_> = row.calls.iter().map(|call| call.name.as_str()).collect();
        println!("{:>3} {:<9} {}{}", row.seq, row.role.as_str(), row.content, calls.join(", "));
    }
    Ok(())
}
