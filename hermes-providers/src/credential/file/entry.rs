//! One entry of the file, as the Python program names its fields (provider reference, 5.2).

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::credential::pool::{Health, Rest, RestReason, Row, Status};
use crate::credential::when::when_ms;
use crate::credential::{Fingerprint, Secret};

/// What an entry's secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryKind {
    /// A key that lasts.
    #[default]
    ApiKey,
    /// An access token, with a refresh token that renews it.
    OAuth,
}

/// One entry. No `Serialize`, and `Debug` shows no secret.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Its id among the provider's entries.
    pub id: String,
    /// What people call it.
    pub label: String,
    /// What its secret is.
    pub kind: EntryKind,
    /// Lower goes first.
    pub priority: i64,
    /// `manual`, `device_code`, or `env:NAME` for one whose secret is not in the file.
    pub source: String,
    /// The key, or the access token.
    pub access_token: Option<SecretString>,
    /// What renews the access token.
    pub refresh_token: Option<SecretString>,
    /// Where it is good, when not at the profile's address.
    pub base_url: Option<String>,
    /// When the access token ends, in milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
    /// How often it was used, as far as it was written down.
    pub request_count: u64,
    /// The secret that `health` is about, when its own is not in the file.
    pub fingerprint: Option<Fingerprint>,
    /// What it went through.
    pub health: Health,
    /// A renewal that was begun: the journal of the refresh.
    pub refresh: Option<RefreshNote>,
}

/// Written before a refresh token is sent, and taken out with what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshNote {
    /// The refresh token that is being spent.
    pub fingerprint: Fingerprint,
    /// Names the one attempt.
    pub attempt: String,
    /// When it began, in milliseconds since the epoch.
    pub begun_at_ms: i64,
    /// When nobody waits for it any more.
    pub until_ms: i64,
    /// The process.
    pub pid: u32,
    /// The run of the host's system that `pid` belongs to; empty where that has no name.
    pub boot: String,
}

fn text(row: &Map<String, Value>, name: &str) -> Option<String> {
    row.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Entry {
    /// Reads an entry; `None` when it has no id.
    pub(super) fn read(value: &Value) -> Option<Self> {
        let row = value.as_object()?;
        let at = |name: &str| row.get(name).and_then(when_ms);
        let id = text(row, "id")?;
        let kind = match row.get("auth_type").and_then(Value::as_str) {
            Some("oauth") => EntryKind::OAuth,
            _ => EntryKind::ApiKey,
        };
        let access_token = text(row, "access_token").map(SecretString::from);
        let fingerprint = text(row, "secret_fingerprint").map(|text| Fingerprint::written(&text));
        let mut health = read_health(row);
        // What was written about another secret says nothing of this one (B48).
        let own = access_token.as_ref().map(Fingerprint::of);
        if own.is_some() && fingerprint.is_some() && own != fingerprint {
            health = Health::default();
        }
        Some(Self {
            label: text(row, "label").unwrap_or_else(|| id.clone()),
            kind,
            priority: row.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            source: text(row, "source").unwrap_or_else(|| "manual".to_owned()),
            access_token,
            refresh_token: text(row, "refresh_token").map(SecretString::from),
            base_url: text(row, "base_url"),
            expires_at_ms: at("expires_at_ms").or_else(|| at("expires_at")),
            request_count: row.get("request_count").and_then(Value::as_u64).unwrap_or_default(),
            fingerprint,
            health,
            refresh: row.get("refresh_started").and_then(read_note),
            id,
        })
    }

    /// Writes what is known of it into `row`; other fields stay.
    pub(super) fn write(&self, row: &mut Map<String, Value>) {
        let mut set = |name: &str, value: Option<Value>| match value {
            Some(value) => {
                row.insert(name.to_owned(), value);
            }
            None => {
                row.shift_remove(name);
            }
        };
        let secret = |secret: &Option<SecretString>| secret.as_ref().map(|text| text.expose_secret().into());
        let kind = match self.kind {
            EntryKind::ApiKey => "api_key",
            EntryKind::OAuth => "oauth",
        };
        set("id", Some(self.id.as_str().into()));
        set("label", Some(self.label.as_str().into()));
        set("auth_type", Some(kind.into()));
        set("priority", Some(self.priority.into()));
        set("source", Some(self.source.as_str().into()));
        set("access_token", secret(&self.access_token));
        set("refresh_token", secret(&self.refresh_token));
        set("base_url", self.base_url.clone().map(Value::from));
        set("expires_at", None);
        set("expires_at_ms", self.expires_at_ms.map(Value::from));
        set("request_count", (self.request_count > 0).then(|| self.request_count.into()));
        let own = self.access_token.as_ref().map(Fingerprint::of).or_else(|| self.fingerprint.clone());
        set("secret_fingerprint", own.map(|own| own.as_str().into()));
        let health = &self.health;
        let (status, rest) = match health.status {
            Status::Ok => ("ok", None),
            Status::Exhausted(rest) => ("exhausted", Some(rest)),
            Status::Dead => ("dead", None),
        };
        set("last_status", Some(status.into()));
        set("last_status_at", (health.changed_at_ms > 0).then(|| health.changed_at_ms.into()));
        set("last_error_reset_at", rest.map(|rest| rest.until_ms.into()));
        set("last_error_reason", rest.map(|rest| rest.reason.as_str().into()));
        set("last_error_message", (!health.why.is_empty()).then(|| health.why.as_str().into()));
        let models: Map<String, Value> =
            health.models.iter().map(|(model, rest)| (model.clone(), rest.until_ms.into())).collect();
        set("model_cooldowns", (!models.is_empty()).then_some(Value::Object(models)));
        set(
            "refresh_started",
            self.refresh.as_ref().map(|note| {
                json!({
                    "fingerprint": note.fingerprint.as_str(), "attempt": note.attempt, "begun_at_ms": note.begun_at_ms,
                    "until_ms": note.until_ms, "pid": note.pid, "boot": note.boot,
                })
            }),
        );
    }

    /// As a row of a pool. `skew_ms` is how long before its end a token is renewed.
    #[must_use]
    pub fn row(&self, skew_ms: i64) -> Row {
        Row {
            id: self.id.clone(),
            label: self.label.clone(),
            priority: self.priority,
            source: self.source.clone(),
            secret: self.access_token.clone().map(Secret::key).unwrap_or_default(),
            base_url: self.base_url.clone(),
            renewable: self.kind == EntryKind::OAuth && self.refresh_token.is_some(),
            renew_at_ms: self.expires_at_ms.map(|at| at - skew_ms),
            health: self.health.clone(),
            leases: 0,
            uses: self.request_count,
        }
    }
}

fn read_health(row: &Map<String, Value>) -> Health {
    let at = |name: &str| row.get(name).and_then(when_ms);
    let reason = RestReason::written(&text(row, "last_error_reason").unwrap_or_default());
    let status = match row.get("last_status").and_then(Value::as_str) {
        Some("dead") => Status::Dead,
        Some("exhausted") => match at("last_error_reset_at") {
            Some(until_ms) => Status::Exhausted(Rest { until_ms, reason }),
            None => Status::Ok,
        },
        _ => Status::Ok,
    };
    let models = row.get("model_cooldowns").and_then(Value::as_object);
    let models = models.into_iter().flatten().filter_map(|(model, until)| {
        Some((model.clone(), Rest { until_ms: when_ms(until)?, reason: RestReason::Limit }))
    });
    Health {
        status,
        models: models.collect(),
        why: text(row, "last_error_message").unwrap_or_default(),
        changed_at_ms: at("last_status_at").unwrap_or_default(),
        ..Health::default()
    }
}

fn read_note(value: &Value) -> Option<RefreshNote> {
    let of = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(RefreshNote {
        fingerprint: Fingerprint::written(&of("fingerprint")?),
        attempt: of("attempt")?,
        begun_at_ms: value.get("begun_at_ms").and_then(Value::as_i64).unwrap_or_default(),
        until_ms: value.get("until_ms").and_then(Value::as_i64).unwrap_or_default(),
        pid: value.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default(),
        boot: of("boot").unwrap_or_default(),
    })
}
