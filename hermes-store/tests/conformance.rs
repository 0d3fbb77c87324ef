//! The conformance suite on every store: one test for each case and store.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside test functions")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hermes_store::conformance::{Backend, CASES};
use hermes_store::fault::Faults;
use hermes_store::memory::MemoryStore;
use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{Clock, LivenessProbe, Store};

#[derive(Default)]
struct Memory(tokio::sync::OnceCell<MemoryStore>);

#[async_trait]
impl Backend for Memory {
    async fn open(&self, clock: Arc<dyn Clock>, probe: Arc<dyn LivenessProbe>) -> Arc<dyn Store> {
        let store = self.0.get_or_init(|| async { MemoryStore::new(clock) }).await.clone();
        store.set_probe(probe);
        Arc::new(store)
    }

    async fn open_faulty(
        &self,
        _clock: Arc<dyn Clock>,
        _probe: Arc<dyn LivenessProbe>,
        _faults: Faults,
    ) -> Option<Arc<dyn Store>> {
        None
    }
}

struct Sqlite {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Default for Sqlite {
    fn default() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().join("hermes.db"), _dir: dir }
    }
}

#[async_trait]
impl Backend for Sqlite {
    async fn open(&self, clock: Arc<dyn Clock>, probe: Arc<dyn LivenessProbe>) -> Arc<dyn Store> {
        self.open_faulty(clock, probe, Faults::default()).await.unwrap()
    }

    async fn open_faulty(
        &self,
        clock: Arc<dyn Clock>,
        probe: Arc<dyn LivenessProbe>,
        faults: Faults,
    ) -> Option<Arc<dyn Store>> {
        let options =
            SqliteOptions { synchronous: Synchronous::Normal, probe, faults, ..SqliteOptions::new(&self.path, clock) };
        Some(Arc::new(SqliteStore::open(options).await.unwrap()))
    }
}

struct Postgres(support::TestSchema);

impl Default for Postgres {
    fn default() -> Self {
        Self(support::TestSchema::new())
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn open(&self, clock: Arc<dyn Clock>, probe: Arc<dyn LivenessProbe>) -> Arc<dyn Store> {
        Arc::new(self.0.open(clock, probe).await)
    }

    async fn open_faulty(
        &self,
        clock: Arc<dyn Clock>,
        probe: Arc<dyn LivenessProbe>,
        faults: Faults,
    ) -> Option<Arc<dyn Store>> {
        let options = PostgresOptions { clock: OwnershipClock::Given(clock), probe, faults, ..self.0.options() };
        Some(Arc::new(PostgresStore::connect(options).await.unwrap()))
    }
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                hermes_store::conformance::run(stringify!($name), Box::new(super::Memory::default())).await;
            })*
        }

        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                hermes_store::conformance::run(stringify!($name), Box::new(super::Sqlite::default())).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                hermes_store::conformance::run(stringify!($name), Box::new(super::Postgres::default())).await;
            })*
        }
    };
}

suite! {
    i01_an_accepted_input_is_seen_by_every_handle,
    i02_s1_the_same_request_gives_the_same_receipt,
    i02_s2_other_content_under_the_same_request_writes_nothing,
    s3_concurrent_submits_of_one_request_make_one_row,
    i03_inputs_start_in_their_order,
    s5_a_later_input_waits_until_the_earlier_one_is_over,
    s6_a_blocked_conversation_delays_no_other,
    s8_a_started_input_cannot_be_cancelled,
    s24_a_wait_that_runs_out_leaves_the_input_in_its_place,
    s25_a_stop_ends_its_own_generation_and_not_the_next,
    c4_the_same_text_twice_is_two_inputs,
    limits_of_inputs_are_kept,
    i06_a_requeued_input_keeps_its_place,
    i06_s13_resolving_needs_the_exact_generation,
    s14_resolving_closes_the_transcript,
    s17_a_retired_owner_accepts_nothing_new_and_loses_nothing,
    i04_s18_a_steer_is_taken_once,
    i04_a_redirect_is_taken_once_with_what_it_cut_off,
    i27_hostile_content_is_kept_as_it_is,
    i07_s19_every_write_with_an_old_token_is_refused,
    i08_tokens_and_generations_only_grow,
    i09_s21_a_sleeper_that_wakes_changes_nothing,
    i10_a_proved_death_frees_the_lease_at_once,
    i10_a_silent_owner_is_replaced,
    i10_a_live_owner_is_never_replaced,
    i10_a_retired_owner_leaves_nothing_behind,
    i11_a_released_lease_is_free_at_once,
    i11_a_claim_whose_answer_was_lost_may_be_repeated,
    d3_a_clock_that_goes_back_lets_nobody_wait_for_hours,
    s7_one_of_many_claimers_gets_the_input,
    s22_an_expired_lease_that_nobody_took_lives_on,
    own_inputs_first_and_orphans_after_a_while,
    a_crashed_turn_is_found_by_the_next_claim,
    an_unknown_head_blocks_but_a_lease_is_given,
    a_waiter_sees_the_change,
    s4_a_crash_around_the_commit_of_an_input_admits_it_once,
    s9_an_old_owner_or_generation_settles_nothing,
    s10_an_input_of_which_nothing_happened_is_put_back_and_runs_once,
    s11_what_may_have_happened_is_never_run_again_by_itself,
    s12_a_turn_that_had_its_answer_is_settled_from_the_transcript,
    s23_a_dead_holder_is_replaced_within_its_lease_and_sooner_with_proof,
    s26_a_crash_after_a_recorded_call_invents_no_result,
    s27_what_could_not_be_stored_is_in_no_view_and_the_turn_can_end,
    s31_a_resume_has_the_same_prefix_as_the_last_request,
    i12_a_recorded_round_is_seen_before_anything_runs,
    i13_a_turn_with_an_open_call_cannot_end,
    i13_s30_results_stand_in_call_order,
    i14_the_journal_tells_what_began,
    i16_a_turn_ends_once,
    i17_s28_the_same_row_twice_is_one_row,
    i17_other_bytes_under_the_same_id_are_refused,
    i17_a_round_may_be_repeated,
    s29_a_refused_batch_leaves_nothing,
    a_session_may_be_changed_on_purpose_and_keeps_its_rows,
    i20_a_session_has_one_child,
    i19_bytes_come_back_as_they_were,
    s40_usage_is_counted_once,
    pages_and_views_show_what_they_say,
    d4_titles_are_cleaned_and_may_repeat,
    a_weaker_title_changes_nothing,
    conversations_are_listed_newest_first,
    search_finds_what_people_see,
    search_speaks_one_language,
    search_keeps_to_its_filters,
    search_leaves_out_what_is_put_away_or_hidden,
    search_follows_the_conversation,
    an_index_is_built_anew,
    i08_a_deleted_conversation_keeps_its_counters,
    route_generations_only_grow,
    i20_a_rotation_moves_the_tip_and_keeps_the_parent,
    i17_a_rotation_may_be_repeated,
    s32_a_refused_compression_changes_nothing,
    s33_e41_rows_that_arrive_meanwhile_are_carried_once,
    s34_one_of_two_compressors_commits,
    s34_a_lock_ends_with_its_lease,
    a_failed_compression_is_waited_out,
    s35_after_many_compressions_each_row_is_seen_once,
    a_shortened_copy_goes_without_what_was_beside_its_text,
    s38_a_rewind_is_taken_back_whole,
    s38_a_rewind_that_something_followed_stays,
    s38_a_retry_is_an_undo_and_an_input_or_neither,
    s38_history_is_not_changed_under_an_input,
    s37_a_branch_goes_its_own_way,
    i08_a_deleted_history_leaves_nothing_behind,
    flags_stay_until_they_are_changed,
    an_ended_conversation_is_opened_by_its_next_input,
    pages_of_a_list_lose_nothing,
    lists_are_narrowed_by_what_is_asked,
    s36_every_id_of_a_lineage_leads_to_one_tip,
    an_ambiguous_name_is_told_with_its_candidates,
    s39_what_is_kept_is_never_pruned,
    pruning_goes_on_where_its_limit_stopped_it,
    empty_conversations_go_and_idle_ones_are_put_aside,
    s41_receipts_come_in_order_and_once,
    s41_a_receipt_is_answered_after_the_end,
    s42_an_adoption_needs_secret_and_generation,
    s42_a_proof_is_given_to_who_has_the_secret,
    s45_two_schedulers_of_one_instant_run_it_once,
    s46_a_task_has_one_worker_that_is_not_over,
    s46_one_of_many_registers_the_task,
    i17_a_registration_may_be_repeated,
    s39_a_conversation_with_a_worker_is_not_deleted,
    i07_a_worker_of_a_conversation_needs_its_fence,
    i10_workers_of_an_owner_that_is_gone_become_unknown,
    workers_are_listed_and_forgotten,
    limits_of_workers_are_kept,
    i08_epochs_only_grow,
    owners_say_what_they_are,
    a_task_is_given_away_with_its_input,
    i07_a_delegation_needs_the_fence_of_a_side,
    i16_a_delegation_ends_once,
    a_cancel_takes_the_queued_input_back,
    s43_a_result_reaches_the_parent_once,
    s43_one_of_many_carriers_gets_the_result,
    s43_a_late_owner_of_an_unknown_one_ends_it_once,
    s43_a_delivered_one_is_never_opened_again,
    a_recovered_child_keeps_its_delegation,
    a_turn_may_take_the_result_itself,
    a_result_that_cannot_be_delivered_is_given_up,
    an_undelivered_result_is_never_forgotten,
    i06_what_the_child_is_known_to_have_done_is_its_end,
    s39_a_conversation_with_a_delegation_is_not_deleted,
    s50_an_import_brings_everything_as_it_was,
    i17_an_import_is_done_once,
    an_import_that_fails_leaves_nothing,
    an_import_touches_nothing_of_another_key,
    i14_e16_a_call_without_a_result_gets_one_that_says_so,
    i08_what_is_imported_again_after_a_deletion_goes_on_counting,
    i19_what_is_exported_is_what_was_imported,
    s36_an_old_id_finds_the_conversation,
    an_imported_conversation_goes_on,
    i25_a_long_conversation_is_exported_page_by_page,
    i05_a_redelivered_message_gets_its_first_receipt,
    s15_a_redelivery_after_a_reset_or_a_deletion_runs_nothing,
    s15_concurrent_receives_of_one_message_make_one_admission,
    s16_a_message_without_an_id_has_an_offset_or_none,
    i05_an_edited_message_is_no_second_turn,
    i01_a_message_that_is_refused_may_come_again,
    i05_receipts_are_kept_until_no_platform_sends_again,
    s15_a_route_leads_where_its_newest_generation_says,
    i08_an_old_generation_never_moves_a_route,
    i15_an_answer_that_is_owed_is_recorded_with_the_end_of_its_turn,
    i15_whoever_ends_the_turn_the_answer_is_owed,
    i04_a_steer_from_another_chat_gets_the_answer_too,
    i17_a_recorded_delivery_may_be_repeated,
    s44_a_delivery_is_sent_once_and_says_what_became_of_it,
    s44_a_crash_between_send_and_ack_is_ambiguous_and_resent_only_by_policy,
    s44_a_slow_sender_comes_back_with_the_truth,
    s44_an_operator_decides_about_the_exact_attempt,
    deliveries_of_a_chat_are_sent_in_order_and_chats_do_not_wait,
    s44_one_of_many_senders_gets_the_delivery,
    deliveries_are_given_up_and_pruned_within_their_limits,
    the_newest_deliveries_of_a_conversation_are_kept,
    a_conversation_is_not_deleted_while_it_is_being_sent,
    i23_a_question_is_answered_once_by_whoever_may,
    i23_silence_is_no,
    i23_a_withdrawn_question_is_never_approved,
    i23_an_answer_about_something_that_is_over_is_refused,
    i17_a_question_may_be_repeated,
    the_next_owner_finds_the_questions_of_its_turn,
    i23_one_of_many_answers_counts,
    questions_are_pruned_and_deleted_with_their_conversation,
}

#[test]
fn every_case_is_a_test() {
    let known: Vec<_> = CASES.iter().map(|(name, _)| *name).collect();
    assert_eq!(NAMES, known);
}
