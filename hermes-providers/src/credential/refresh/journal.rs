//! The notes of renewals in the file. Each method is one change under the lock, on a thread that may block.

use secrecy::SecretString;

use crate::credential::file::{AuthDoc, AuthFile, AuthFileError, Entry, RefreshNote};
use crate::credential::pool::{Health, Status};
use crate::credential::refresh::{RefreshFailure, TokenAnswer, TokenEndpoint};
use crate::credential::{Fingerprint, Now};

/// Times that the end of a renewal is written before it is given up: the tokens are worth some patience.
const WRITE_ATTEMPTS: u32 = 5;
/// Between two of them.
const WRITE_PAUSE_MS: u64 = 200;

#[derive(Clone)]
pub(super) struct Journal {
    pub(super) file: AuthFile,
    pub(super) now: Now,
}

/// What may be done now.
pub(super) enum Begun {
    /// The file has a newer token already.
    Newer,
    /// Another process is at it.
    Another,
    /// The note is written: send it.
    Mine { attempt: String, refresh_token: SecretString },
}

fn not_now(error: &AuthFileError) -> RefreshFailure {
    RefreshFailure::NotNow { why: error.to_string() }
}

impl Journal {
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut AuthDoc) -> (T, bool) + Send + 'static,
    ) -> Result<T, AuthFileError> {
        let file = self.file.clone();
        match tokio::task::spawn_blocking(move || file.update(change)).await {
            Ok(result) => result,
            Err(_) => Err(AuthFileError::Unwritable {
                path: self.file.path().display().to_string(),
                why: "the program is ending".to_owned(),
            }),
        }
    }

    /// Writes the note, unless there is nothing to do or another is at it.
    pub(super) async fn begin(
        &self,
        provider: &str,
        id: &str,
        old: &Fingerprint,
        endpoint: &TokenEndpoint,
    ) -> Result<Begun, RefreshFailure> {
        let (provider, id, old) = (provider.to_owned(), id.to_owned(), old.clone());
        let (now, rotates, ttl) = ((self.now)(), endpoint.rotates, endpoint.note_ttl_ms);
        let begun = self.change(move |doc| {
            let Some(mut entry) = doc.entry(&provider, &id) else {
                return (Err(RefreshFailure::NotNow { why: "the credential was removed".to_owned() }), false);
            };
            let (result, changed) = begin(&mut entry, &old, now, rotates, ttl);
            if changed {
                doc.put(&provider, &entry);
            }
            (result, changed)
        });
        begun.await.map_err(|error| not_now(&error))?
    }

    /// Writes what came of it.
    pub(super) async fn end(
        &self,
        provider: &str,
        id: &str,
        attempt: &str,
        spent: &Fingerprint,
        answer: TokenAnswer,
        rotates: bool,
    ) -> Result<(), RefreshFailure> {
        let mut last = None;
        for number in 0..WRITE_ATTEMPTS {
            if number > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(WRITE_PAUSE_MS)).await;
            }
            let (provider, id, attempt) = (provider.to_owned(), id.to_owned(), attempt.to_owned());
            let (answer, now, spent) = (answer.clone(), (self.now)(), spent.clone());
            let ended = self.change(move |doc| {
                let Some(mut entry) = doc.entry(&provider, &id) else {
                    return (Err(RefreshFailure::NotNow { why: "the credential was removed".to_owned() }), false);
                };
                let is_mine = entry.refresh.as_ref().is_some_and(|note| note.attempt == attempt);
                // Somebody took this process for dead (it slept, say) and said so: what it brings is good all the same.
                let revives = matches!(answer, TokenAnswer::Tokens { .. })
                    && entry.refresh_token.as_ref().map(Fingerprint::of) == Some(spent);
                if !is_mine && !revives {
                    let why = "the credential was changed while it was renewed".to_owned();
                    return (Err(RefreshFailure::NotNow { why }), false);
                }
                let result = end(&mut entry, answer, now, rotates);
                doc.put(&provider, &entry);
                (result, true)
            });
            match ended.await {
                Ok(result) => return result,
                Err(error) => last = Some(error),
            }
        }
        // The note stays, and says to the next one what happened.
        Err(not_now(&last.unwrap_or(AuthFileError::Busy { path: self.file.path().display().to_string() })))
    }
}

/// Decides on an entry as the file has it. Says whether the entry was changed.
pub(super) fn begin(
    entry: &mut Entry,
    old: &Fingerprint,
    now: i64,
    rotates: bool,
    ttl: i64,
) -> (Result<Begun, RefreshFailure>, bool) {
    let Some(refresh_token) = entry.refresh_token.clone() else {
        let why = "there is no refresh token".to_owned();
        return (Err(RefreshFailure::Dead { why }), false);
    };
    let own = entry.access_token.as_ref().map(Fingerprint::of);
    let ended = entry.expires_at_ms.is_some_and(|at| at <= now);
    if own.as_ref().is_some_and(|own| own != old) && !ended {
        return (Ok(Begun::Newer), false);
    }
    if entry.health.is_dead() {
        return (Err(RefreshFailure::Dead { why: entry.health.why.clone() }), false);
    }
    let spent = Fingerprint::of(&refresh_token);
    if let Some(note) = entry.refresh.as_ref().filter(|note| note.fingerprint == spent) {
        if note.until_ms > now && is_alive(note) {
            return (Ok(Begun::Another), false);
        }
        if rotates {
            let why = format!(
                "its renewal was begun at {} ms since the epoch by process {} and the answer was never written down: \
                 whether the refresh token is used up is not known, so it is not sent again; log in again",
                note.begun_at_ms, note.pid
            );
            entry.health = Health { status: Status::Dead, why: why.clone(), changed_at_ms: now, ..Health::default() };
            entry.refresh = None;
            return (Err(RefreshFailure::Dead { why }), true);
        }
    }
    let attempt = format!("{:016x}", fastrand::u64(..));
    entry.refresh = Some(RefreshNote {
        fingerprint: spent,
        attempt: attempt.clone(),
        begun_at_ms: now,
        until_ms: now.saturating_add(ttl),
        pid: std::process::id(),
        boot: boot(),
    });
    (Ok(Begun::Mine { attempt, refresh_token }), true)
}

/// Puts the answer in the place of the note.
pub(super) fn end(entry: &mut Entry, answer: TokenAnswer, now: i64, rotates: bool) -> Result<(), RefreshFailure> {
    entry.refresh = None;
    let mut die = |why: String| {
        entry.health = Health { status: Status::Dead, why: why.clone(), changed_at_ms: now, ..Health::default() };
        Err(RefreshFailure::Dead { why })
    };
    match answer {
        TokenAnswer::Tokens { access_token, refresh_token, expires_in_s } => {
            entry.access_token = Some(access_token);
            entry.refresh_token = refresh_token.or_else(|| entry.refresh_token.take());
            entry.expires_at_ms = expires_in_s.map(|seconds| now.saturating_add(seconds.saturating_mul(1_000)));
            entry.health = Health { changed_at_ms: now, ..Health::default() };
            Ok(())
        }
        TokenAnswer::Refused { why } => {
            die(format!("the issuer does not take its refresh token any more ({why}); log in again"))
        }
        TokenAnswer::Unknown { why } if rotates => die(format!(
            "its renewal had no readable answer ({why}): whether the refresh token is used up is not known, so it is not \
             sent again; log in again"
        )),
        TokenAnswer::Unknown { why } | TokenAnswer::NotNow { why } => Err(RefreshFailure::NotNow { why }),
    }
}

/// False when the process of a note is gone for certain. A number that was given away again is found out by the time.
fn is_alive(note: &RefreshNote) -> bool {
    if note.boot.is_empty() || note.boot != boot() {
        return true;
    }
    // proc(5): the state stands behind the name, which may hold anything; Z and X are ends.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", note.pid)).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The run of this host's system; empty where it has no such name.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
