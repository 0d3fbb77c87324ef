//! kill -9, as `crash` does it 200 times by hand; here a few.

use std::time::Duration;

#[tokio::test]
async fn i01_i12_i14_kill_9_in_a_turn_loses_nothing_and_repeats_nothing() {
    let report = hermes_tests::crash::series(8, Duration::from_millis(400), 5).await.unwrap();
    assert!(report.kills >= 3, "the kills came too late to show anything: {report:?}");
}
