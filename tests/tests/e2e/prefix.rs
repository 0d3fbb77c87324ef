//! The bytes of requests: each is a prefix of the next.

use hermes_tests::home::Home;
use hermes_tests::server::ModelServer;

/// The body without what closes the list of messages.
fn open_part(body: &[u8]) -> &[u8] {
    body.strip_suffix(b"]}").unwrap_or_else(|| panic!("messages are not last: {}", String::from_utf8_lossy(body)))
}

#[tokio::test]
async fn i18_request_bodies_of_a_long_turn_and_of_a_resume_are_byte_prefixes_of_each_other() {
    let server = ModelServer::start().await.unwrap();
    let home = Home::with_server(&server.base_url()).unwrap();
    for args in [&["-z", "RUN_TOOLS 20"][..], &["-c", "-z", "hello"], &["-c", "-z", "PAR 3"]] {
        let run = home.run(args).await.unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 21 + 1 + 2);
    for pair in seen.windows(2) {
        let (shorter, longer) = (open_part(&pair[0].body), &pair[1].body);
        assert!(
            longer.starts_with(shorter),
            "{}\n{}",
            String::from_utf8_lossy(shorter),
            String::from_utf8_lossy(longer)
        );
    }
}
