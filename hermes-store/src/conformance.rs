//! The conformance suite: what every store must do, as named cases.
//!
//! A back end's tests make a [`Backend`] for each case and call [`run`]. The names carry the invariant (`i07_...`) or the
//! number of the behaviour list (`s22_...`, `d3_...`) that a case guards.
//!
//! Where a behaviour of the list is larger than a store, the case shows the store's share of it. S11: an effect without a
//! result makes only its call unknown, as long as the journal can name the call; the whole input is unknown only when
//! nobody can go on (I06, I14). S10, S12: the proof is the store's, the decision is the engine's. S24, S25: waiting and
//! stopping are the engine's; the store keeps the queue and the generations apart. S27: the engine ends the turn. S31:
//! the prefix is made of the rows again and its hash is not stored. S45: the tables of cron come with cron; its slots
//! fit the ledgers of inputs and of workers.

// A failed case ends its test by a panic, like any test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod approval;
mod delegations;
mod delivery;
mod history;
mod inputs;
mod listing;
mod ownership;
mod recovery;
mod retention;
mod search;
mod transcript;
mod transfer;
mod work;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use crate::fault::Faults;
use crate::{
    AdmissionId, AdmissionOutcome, AdmitOutcome, CallId, CallOutcome, CallResult, ClaimOutcome, ClaimPolicy,
    ClaimRequest, Clock, ConversationId, Fence, Intent, LivenessProbe, ManualClock, MessageId, MessagePage,
    NewAdmission, NewCall, NewConversation, NewMessage, NewSession, OwnerId, OwnerInfo, PromptSnapshot, Receipt,
    ReplaySafety, Role, Round, Store, StoreError, StoredMessage, TurnEnd, TurnId, UsageDelta, View,
};

/// Where the clock of every case starts, in milliseconds since the Unix epoch.
pub const START_MS: i64 = 1_700_000_000_000;
/// Life of a lease in the cases.
pub const TTL_MS: u64 = 300_000;

/// One storage, which can be opened any number of times.
#[async_trait]
pub trait Backend: Send + Sync {
    /// A new handle of the storage. All handles see the same rows.
    async fn open(&self, clock: Arc<dyn Clock>, probe: Arc<dyn LivenessProbe>) -> Arc<dyn Store>;

    /// The same, with faults that its COMMITs meet; `None` for a store that has no COMMIT.
    async fn open_faulty(
        &self,
        clock: Arc<dyn Clock>,
        probe: Arc<dyn LivenessProbe>,
        faults: Faults,
    ) -> Option<Arc<dyn Store>>;
}

/// A probe that calls dead whom it was told to.
#[derive(Debug, Default)]
pub struct ListProbe(Mutex<BTreeSet<OwnerId>>);

impl ListProbe {
    /// From now on this owner is provably dead.
    pub fn kill(&self, owner: &OwnerId) {
        self.0.lock().unwrap().insert(owner.clone());
    }
}

impl LivenessProbe for ListProbe {
    fn is_provably_dead(&self, owner: &OwnerInfo) -> bool {
        self.0.lock().unwrap().contains(&owner.id)
    }
}

/// What a case works with: a fresh storage, its clock, its probe.
pub struct World {
    backend: Box<dyn Backend>,
    /// A first handle.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<ManualClock>,
    /// The probe.
    pub probe: Arc<ListProbe>,
    counter: AtomicI64,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// One case.
pub type Case = for<'a> fn(&'a World) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Every case with its name.
        pub const CASES: &[(&str, Case)] = &[$((stringify!($name), |world| Box::pin($module::$name(world)))),*];
    };
}

cases! {
    inputs::i01_an_accepted_input_is_seen_by_every_handle,
    inputs::i02_s1_the_same_request_gives_the_same_receipt,
    inputs::i02_s2_other_content_under_the_same_request_writes_nothing,
    inputs::s3_concurrent_submits_of_one_request_make_one_row,
    inputs::i03_inputs_start_in_their_order,
    inputs::s5_a_later_input_waits_until_the_earlier_one_is_over,
    inputs::s6_a_blocked_conversation_delays_no_other,
    inputs::s8_a_started_input_cannot_be_cancelled,
    inputs::s24_a_wait_that_runs_out_leaves_the_input_in_its_place,
    inputs::s25_a_stop_ends_its_own_generation_and_not_the_next,
    inputs::c4_the_same_text_twice_is_two_inputs,
    inputs::limits_of_inputs_are_kept,
    inputs::i06_a_requeued_input_keeps_its_place,
    inputs::i06_s13_resolving_needs_the_exact_generation,
    inputs::s14_resolving_closes_the_transcript,
    inputs::s17_a_retired_owner_accepts_nothing_new_and_loses_nothing,
    inputs::i04_s18_a_steer_is_taken_once,
    inputs::i04_a_redirect_is_taken_once_with_what_it_cut_off,
    inputs::i27_hostile_content_is_kept_as_it_is,
    ownership::i07_s19_every_write_with_an_old_token_is_refused,
    ownership::i08_tokens_and_generations_only_grow,
    ownership::i09_s21_a_sleeper_that_wakes_changes_nothing,
    ownership::i10_a_proved_death_frees_the_lease_at_once,
    ownership::i10_a_silent_owner_is_replaced,
    ownership::i10_a_live_owner_is_never_replaced,
    ownership::i10_a_retired_owner_leaves_nothing_behind,
    ownership::i11_a_released_lease_is_free_at_once,
    ownership::i11_a_claim_whose_answer_was_lost_may_be_repeated,
    ownership::d3_a_clock_that_goes_back_lets_nobody_wait_for_hours,
    ownership::s7_one_of_many_claimers_gets_the_input,
    ownership::s22_an_expired_lease_that_nobody_took_lives_on,
    ownership::own_inputs_first_and_orphans_after_a_while,
    ownership::a_crashed_turn_is_found_by_the_next_claim,
    ownership::an_unknown_head_blocks_but_a_lease_is_given,
    ownership::a_waiter_sees_the_change,
    recovery::s4_a_crash_around_the_commit_of_an_input_admits_it_once,
    recovery::s9_an_old_owner_or_generation_settles_nothing,
    recovery::s10_an_input_of_which_nothing_happened_is_put_back_and_runs_once,
    recovery::s11_what_may_have_happened_is_never_run_again_by_itself,
    recovery::s12_a_turn_that_had_its_answer_is_settled_from_the_transcript,
    recovery::s23_a_dead_holder_is_replaced_within_its_lease_and_sooner_with_proof,
    recovery::s26_a_crash_after_a_recorded_call_invents_no_result,
    recovery::s27_what_could_not_be_stored_is_in_no_view_and_the_turn_can_end,
    recovery::s31_a_resume_has_the_same_prefix_as_the_last_request,
    transcript::i12_a_recorded_round_is_seen_before_anything_runs,
    transcript::i13_a_turn_with_an_open_call_cannot_end,
    transcript::i13_s30_results_stand_in_call_order,
    transcript::i14_the_journal_tells_what_began,
    transcript::i16_a_turn_ends_once,
    transcript::i17_s28_the_same_row_twice_is_one_row,
    transcript::i17_other_bytes_under_the_same_id_are_refused,
    transcript::i17_a_round_may_be_repeated,
    transcript::s29_a_refused_batch_leaves_nothing,
    transcript::a_session_may_be_changed_on_purpose_and_keeps_its_rows,
    transcript::i20_a_session_has_one_child,
    transcript::i19_bytes_come_back_as_they_were,
    transcript::s40_usage_is_counted_once,
    transcript::pages_and_views_show_what_they_say,
    listing::d4_titles_are_cleaned_and_may_repeat,
    listing::a_weaker_title_changes_nothing,
    listing::conversations_are_listed_newest_first,
    search::search_finds_what_people_see,
    search::search_speaks_one_language,
    search::search_keeps_to_its_filters,
    search::search_leaves_out_what_is_put_away_or_hidden,
    search::search_follows_the_conversation,
    search::an_index_is_built_anew,
    listing::i08_a_deleted_conversation_keeps_its_counters,
    listing::route_generations_only_grow,
    history::i20_a_rotation_moves_the_tip_and_keeps_the_parent,
    history::i17_a_rotation_may_be_repeated,
    history::s32_a_refused_compression_changes_nothing,
    history::s33_e41_rows_that_arrive_meanwhile_are_carried_once,
    history::s34_one_of_two_compressors_commits,
    history::s34_a_lock_ends_with_its_lease,
    history::a_failed_compression_is_waited_out,
    history::s35_after_many_compressions_each_row_is_seen_once,
    history::a_shortened_copy_goes_without_what_was_beside_its_text,
    history::s38_a_rewind_is_taken_back_whole,
    history::s38_a_rewind_that_something_followed_stays,
    history::s38_a_retry_is_an_undo_and_an_input_or_neither,
    history::s38_history_is_not_changed_under_an_input,
    history::s37_a_branch_goes_its_own_way,
    history::i08_a_deleted_history_leaves_nothing_behind,
    retention::flags_stay_until_they_are_changed,
    retention::an_ended_conversation_is_opened_by_its_next_input,
    retention::pages_of_a_list_lose_nothing,
    retention::lists_are_narrowed_by_what_is_asked,
    retention::s36_every_id_of_a_lineage_leads_to_one_tip,
    retention::an_ambiguous_name_is_told_with_its_candidates,
    retention::s39_what_is_kept_is_never_pruned,
    retention::pruning_goes_on_where_its_limit_stopped_it,
    retention::empty_conversations_go_and_idle_ones_are_put_aside,
    work::s41_receipts_come_in_order_and_once,
    work::s41_a_receipt_is_answered_after_the_end,
    work::s42_an_adoption_needs_secret_and_generation,
    work::s42_a_proof_is_given_to_who_has_the_secret,
    work::s45_two_schedulers_of_one_instant_run_it_once,
    work::s46_a_task_has_one_worker_that_is_not_over,
    work::s46_one_of_many_registers_the_task,
    work::i17_a_registration_may_be_repeated,
    work::s39_a_conversation_with_a_worker_is_not_deleted,
    work::i07_a_worker_of_a_conversation_needs_its_fence,
    work::i10_workers_of_an_owner_that_is_gone_become_unknown,
    work::workers_are_listed_and_forgotten,
    work::limits_of_workers_are_kept,
    work::i08_epochs_only_grow,
    work::owners_say_what_they_are,
    delegations::a_task_is_given_away_with_its_input,
    delegations::i07_a_delegation_needs_the_fence_of_a_side,
    delegations::i16_a_delegation_ends_once,
    delegations::a_cancel_takes_the_queued_input_back,
    delegations::s43_a_result_reaches_the_parent_once,
    delegations::s43_one_of_many_carriers_gets_the_result,
    delegations::s43_a_late_owner_of_an_unknown_one_ends_it_once,
    delegations::s43_a_delivered_one_is_never_opened_again,
    delegations::a_recovered_child_keeps_its_delegation,
    delegations::a_turn_may_take_the_result_itself,
    delegations::a_result_that_cannot_be_delivered_is_given_up,
    delegations::an_undelivered_result_is_never_forgotten,
    delegations::i06_what_the_child_is_known_to_have_done_is_its_end,
    delegations::s39_a_conversation_with_a_delegation_is_not_deleted,
    transfer::s50_an_import_brings_everything_as_it_was,
    transfer::i17_an_import_is_done_once,
    transfer::an_import_that_fails_leaves_nothing,
    transfer::an_import_touches_nothing_of_another_key,
    transfer::i14_e16_a_call_without_a_result_gets_one_that_says_so,
    transfer::i08_what_is_imported_again_after_a_deletion_goes_on_counting,
    transfer::i19_what_is_exported_is_what_was_imported,
    transfer::s36_an_old_id_finds_the_conversation,
    transfer::an_imported_conversation_goes_on,
    transfer::i25_a_long_conversation_is_exported_page_by_page,
    delivery::i05_a_redelivered_message_gets_its_first_receipt,
    delivery::s15_a_redelivery_after_a_reset_or_a_deletion_runs_nothing,
    delivery::s15_concurrent_receives_of_one_message_make_one_admission,
    delivery::s16_a_message_without_an_id_has_an_offset_or_none,
    delivery::i05_an_edited_message_is_no_second_turn,
    delivery::i01_a_message_that_is_refused_may_come_again,
    delivery::i05_receipts_are_kept_until_no_platform_sends_again,
    delivery::s15_a_route_leads_where_its_newest_generation_says,
    delivery::i08_an_old_generation_never_moves_a_route,
    delivery::i15_an_answer_that_is_owed_is_recorded_with_the_end_of_its_turn,
    delivery::i15_whoever_ends_the_turn_the_answer_is_owed,
    delivery::i04_a_steer_from_another_chat_gets_the_answer_too,
    delivery::i17_a_recorded_delivery_may_be_repeated,
    delivery::s44_a_delivery_is_sent_once_and_says_what_became_of_it,
    delivery::s44_a_crash_between_send_and_ack_is_ambiguous_and_resent_only_by_policy,
    delivery::s44_a_slow_sender_comes_back_with_the_truth,
    delivery::s44_an_operator_decides_about_the_exact_attempt,
    delivery::deliveries_of_a_chat_are_sent_in_order_and_chats_do_not_wait,
    delivery::s44_one_of_many_senders_gets_the_delivery,
    delivery::deliveries_are_given_up_and_pruned_within_their_limits,
    delivery::the_newest_deliveries_of_a_conversation_are_kept,
    delivery::a_conversation_is_not_deleted_while_it_is_being_sent,
    approval::i23_a_question_is_answered_once_by_whoever_may,
    approval::i23_silence_is_no,
    approval::i23_a_withdrawn_question_is_never_approved,
    approval::i23_an_answer_about_something_that_is_over_is_refused,
    approval::i17_a_question_may_be_repeated,
    approval::the_next_owner_finds_the_questions_of_its_turn,
    approval::i23_one_of_many_answers_counts,
    approval::questions_are_pruned_and_deleted_with_their_conversation,
}

/// Runs one case on a fresh storage.
///
/// # Panics
/// When the store fails the case, or there is no such case.
pub async fn run(name: &str, backend: Box<dyn Backend>) {
    let case = CASES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no case {name}")).1;
    let clock = Arc::new(ManualClock::at(START_MS));
    let probe = Arc::new(ListProbe::default());
    let store = backend.open(clock.clone(), probe.clone()).await;
    let world = World { backend, store, clock, probe, counter: AtomicI64::new(0) };
    case(&world).await;
}

/// An owner's id.
#[must_use]
pub fn owner(name: &str) -> OwnerId {
    OwnerId::parse(name).unwrap()
}

fn conv(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

fn message_id(name: &str) -> MessageId {
    MessageId::parse(name).unwrap()
}

fn call_id(name: &str) -> CallId {
    CallId::parse(name).unwrap()
}

fn turn_id(name: &str) -> TurnId {
    TurnId::parse(name).unwrap()
}

/// An input of conversation `conversation`.
#[must_use]
pub fn input(conversation: &str, request: &str, payload: &str) -> NewAdmission {
    NewAdmission {
        id: AdmissionId::parse(&format!("adm-{conversation}-{request}")).unwrap(),
        conversation: conv(conversation),
        principal: "user".to_owned(),
        request_id: request.to_owned(),
        intent: Intent::Queue,
        payload: payload.to_owned(),
        submitted_by: owner("a"),
    }
}

/// A conversation to be created.
#[must_use]
pub fn new_conversation(name: &str) -> NewConversation {
    NewConversation { id: conv(name), profile: "default".to_owned(), source: "cli".to_owned(), title: None }
}

fn session(conversation: &str, parent: Option<&str>, name: &str) -> NewSession {
    let _ = conversation;
    NewSession {
        id: crate::SessionId::parse(name).unwrap(),
        parent: parent.map(|parent| crate::SessionId::parse(parent).unwrap()),
        provider: "practice".to_owned(),
        model: "practice-1".to_owned(),
        cwd: Some("/tmp".to_owned()),
        prompt: PromptSnapshot::new(format!("prompt of {name}").into_bytes()),
        tools: PromptSnapshot::new(&b"[]"[..]),
    }
}

fn end(reason: &str, outcome: AdmissionOutcome) -> TurnEnd {
    TurnEnd { reason: reason.to_owned(), detail: None, outcome, api_calls: 1 }
}

fn completed() -> TurnEnd {
    end("completed", AdmissionOutcome::Completed)
}

fn text(id: &str, role: Role, content: &str) -> NewMessage {
    NewMessage::text(message_id(id), role, content)
}

fn call(id: &str) -> NewCall {
    NewCall {
        call: call_id(id),
        result: message_id(&format!("{id}-result")),
        provider_id: format!("provider-{id}"),
        name: "terminal".to_owned(),
        arguments: "{\"command\": \"ls\"}".to_owned(),
        replay: ReplaySafety::Once,
        preset: None,
    }
}

fn ok(content: &str) -> CallResult {
    CallResult { outcome: CallOutcome::Ok, content: content.to_owned(), meta: None }
}

fn usage(attempt: &str) -> UsageDelta {
    UsageDelta {
        attempt: attempt.to_owned(),
        provider: "practice".to_owned(),
        model: "practice-1".to_owned(),
        task: String::new(),
        input: 10,
        output: 5,
        cache_read: 3,
        cache_write: 2,
        reasoning: 1,
        known: true,
    }
}

fn is_fenced<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::Fenced { .. }) => true,
        other => panic!("expected Fenced, got {other:?}"),
    }
}

fn is_conflict<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::Conflict { .. }) => true,
        other => panic!("expected Conflict, got {other:?}"),
    }
}

fn is_invalid<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::Invalid { .. }) => true,
        other => panic!("expected Invalid, got {other:?}"),
    }
}

fn is_not_found<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    match result {
        Err(StoreError::NotFound { .. }) => true,
        other => panic!("expected NotFound, got {other:?}"),
    }
}

impl World {
    /// Another handle of the same storage, as another process would have.
    pub async fn another(&self) -> Arc<dyn Store> {
        self.backend.open(self.clock.clone(), self.probe.clone()).await
    }

    fn clock_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn fresh(&self, kind: &str) -> String {
        format!("{kind}-{}", self.counter.fetch_add(1, Ordering::SeqCst))
    }

    /// Accepts an input, with its conversation.
    async fn admit(&self, input: NewAdmission) -> Receipt {
        let new = new_conversation(input.conversation.as_str());
        match self.store.create_and_admit(new, input).await.unwrap() {
            AdmitOutcome::Accepted(receipt) => receipt,
            AdmitOutcome::Replayed(receipt) => panic!("replayed: {receipt:?}"),
        }
    }

    fn request(&self, conversation: &str, who: &str, policy: ClaimPolicy) -> ClaimRequest {
        ClaimRequest {
            conversation: conv(conversation),
            owner: owner(who),
            turn: turn_id(&self.fresh("turn")),
            ttl_ms: TTL_MS,
            policy,
        }
    }

    async fn claim(&self, conversation: &str, who: &str) -> ClaimOutcome {
        self.store.claim(self.request(conversation, who, ClaimPolicy::Any)).await.unwrap()
    }

    /// Claims an input that must be there to claim.
    async fn start(&self, conversation: &str, who: &str) -> (Fence, TurnId, Receipt) {
        match self.claim(conversation, who).await {
            ClaimOutcome::Turn { fence, admission, .. } => {
                let turn = admission.receipt.turn.clone().expect("a started admission has a turn");
                (fence, turn, admission.receipt)
            }
            other => panic!("no turn: {other:?}"),
        }
    }

    async fn lease(&self, conversation: &str, who: &str) -> Fence {
        match self.store.claim(self.request(conversation, who, ClaimPolicy::LeaseOnly)).await.unwrap() {
            ClaimOutcome::Leased { fence } => fence,
            other => panic!("no lease: {other:?}"),
        }
    }

    async fn beat(&self, who: &str) {
        let info =
            OwnerInfo { id: owner(who), host: "here".to_owned(), boot_id: "boot".to_owned(), pid: 1, pid_start: 1 };
        self.store.heartbeat(&info).await.unwrap();
    }

    /// Accepts an input, starts it, opens the first session with a user row.
    async fn begin(&self, conversation: &str, who: &str) -> (Fence, TurnId, Receipt) {
        self.admit(input(conversation, &self.fresh("request"), "hello")).await;
        let (fence, turn, receipt) = self.start(conversation, who).await;
        let rows = vec![text(&self.fresh("user"), Role::User, "hello")];
        if self.store.conversation(&conv(conversation)).await.unwrap().tip.is_none() {
            let new = session(conversation, None, conversation);
            self.store.open_session(&fence, &turn, new, rows).await.unwrap();
        } else {
            self.store.append(&fence, &turn, rows, None).await.unwrap();
        }
        (fence, turn, receipt)
    }

    /// Records a round of these calls.
    async fn round(&self, fence: &Fence, turn: &TurnId, id: &str, calls: Vec<NewCall>) -> Round<crate::Recorded> {
        let round = Round::plan(turn.clone(), text(id, Role::Assistant, ""), calls, None);
        self.store.record_round(fence, round).await.unwrap()
    }

    async fn rows(&self, conversation: &str, view: View) -> Vec<StoredMessage> {
        self.store.messages(&conv(conversation), view, MessagePage::default()).await.unwrap()
    }
}
