//! Transport failures as error classes.

use std::error::Error;
use std::io;

use crate::classify::{PROXY_LOGIN_ADVICE, redact};
use crate::error::{ErrorClass, ProviderError};

/// What a transport error means. `endpoint` is scheme, host and port; nothing of the key is in the result.
pub(super) fn transport(error: reqwest::Error, endpoint: &str, route: &str, secrets: &[&str]) -> ProviderError {
    // A URL may hold a secret in its query.
    let error = error.without_url();
    let cause = chain(&error).last().map(ToString::to_string).unwrap_or_default();
    let (class, message) = if certificate(&error) {
        let advice = "check the computer's clock and the address; an authority of your own, as that of a proxy that opens \
                      connections, is trusted with `network.ca_file`";
        (ErrorClass::Certificate, format!("the certificate of {endpoint} cannot be verified ({cause}); {advice}"))
    } else if error.is_builder() {
        (ErrorClass::Configuration, format!("the request to {endpoint} cannot be made ({cause}); check `base_url`"))
    } else if error.is_connect() && asks_for_login(&error) {
        (
            ErrorClass::Configuration,
            format!("the proxy lets nobody through to {endpoint} without a login. {PROXY_LOGIN_ADVICE}"),
        )
    } else if error.is_connect() {
        let advice = "is the server running, the address right and the network there?";
        (ErrorClass::Timeout, format!("cannot connect to {endpoint} ({cause}); {advice}"))
    } else if bad_answer(&error) {
        (ErrorClass::BadResponse, format!("{endpoint} does not speak HTTP as expected ({cause}); check `base_url`"))
    } else {
        (ErrorClass::Timeout, format!("the connection to {endpoint} was lost before an answer ({cause}); try again"))
    };
    let mut out = ProviderError::new(class, redact(&format!("{route}: {message}"), secrets));
    route.clone_into(&mut out.route);
    out
}

/// True when a connection broke after it was made and before the head of an answer was read.
///
/// The HTTP library does not tell a connection that closed silently from one that closed in the middle of the head.
pub(super) fn lost_before_answer(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_builder() || error.is_timeout() {
        return false;
    }
    chain(error).any(|cause| {
        let http = cause.downcast_ref::<hyper::Error>();
        let broken = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            )
        });
        broken || http.is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
    })
}

/// The error and its causes. An `io::Error` hides what it wraps from `source`, so it is opened here.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
        None => (*error).source(),
    })
}

fn certificate(error: &reqwest::Error) -> bool {
    chain(error)
        .filter_map(|cause| cause.downcast_ref::<rustls::Error>())
        .any(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
}

/// Whether a proxy answered a tunnel's request with 407. The HTTP library has no type for it that others see.
fn asks_for_login(error: &reqwest::Error) -> bool {
    chain(error).any(|cause| cause.to_string().contains("proxy authorization required"))
}

fn bad_answer(error: &reqwest::Error) -> bool {
    chain(error).filter_map(|cause| cause.downcast_ref::<hyper::Error>()).any(hyper::Error::is_parse)
}
