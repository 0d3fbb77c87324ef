//! What the tests of faults share: one kind of store, fresh, whose COMMITs can fail.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use hermes_store::conformance::{ListProbe, START_MS};
use hermes_store::fault::{Fault, Faults};
use hermes_store::memory::MemoryStore;
use hermes_store::postgres::{OwnershipClock, PostgresOptions, PostgresStore};
use hermes_store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use hermes_store::{ManualClock, Store, StoreError};

use super::TestSchema;

/// The clock and the probe of a storage.
pub(crate) struct Setting {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) probe: Arc<ListProbe>,
}

impl Default for Setting {
    fn default() -> Self {
        Self { clock: Arc::new(ManualClock::at(START_MS)), probe: Arc::default() }
    }
}

/// One kind of store, fresh.
#[async_trait]
pub(crate) trait Storage: Send + Sync {
    /// Another handle of the same storage, with these faults.
    async fn open(&self, faults: &Faults) -> Arc<dyn Store>;

    fn setting(&self) -> &Setting;

    /// Whether a fault meets the COMMIT itself. If not, the test leaves the method out or throws its answer away.
    fn is_hooked(&self) -> bool {
        true
    }
}

/// Makes a storage.
pub(crate) type Fresh = fn() -> Box<dyn Storage>;

struct Sqlite(tempfile::TempDir, Setting);

#[async_trait]
impl Storage for Sqlite {
    async fn open(&self, faults: &Faults) -> Arc<dyn Store> {
        let options = SqliteOptions {
            synchronous: Synchronous::Normal,
            faults: faults.clone(),
            probe: self.1.probe.clone(),
            ..SqliteOptions::new(self.0.path().join("hermes.db"), self.1.clock.clone())
        };
        Arc::new(SqliteStore::open(options).await.unwrap())
    }

    fn setting(&self) -> &Setting {
        &self.1
    }
}

struct Postgres(TestSchema, Setting);

#[async_trait]
impl Storage for Postgres {
    async fn open(&self, faults: &Faults) -> Arc<dyn Store> {
        let options = PostgresOptions {
            faults: faults.clone(),
            clock: OwnershipClock::Given(self.1.clock.clone()),
            probe: self.1.probe.clone(),
            ..self.0.options()
        };
        Arc::new(PostgresStore::connect(options).await.unwrap())
    }

    fn setting(&self) -> &Setting {
        &self.1
    }
}

struct Memory(MemoryStore, Setting);

#[async_trait]
impl Storage for Memory {
    async fn open(&self, _: &Faults) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn setting(&self) -> &Setting {
        &self.1
    }

    fn is_hooked(&self) -> bool {
        false
    }
}

pub(crate) fn sqlite() -> Box<dyn Storage> {
    Box::new(Sqlite(tempfile::tempdir().unwrap(), Setting::default()))
}

pub(crate) fn postgres() -> Box<dyn Storage> {
    Box::new(Postgres(TestSchema::new(), Setting::default()))
}

pub(crate) fn memory() -> Box<dyn Storage> {
    let setting = Setting::default();
    let store = MemoryStore::new(setting.clock.clone());
    store.set_probe(setting.probe.clone());
    Box::new(Memory(store, setting))
}

/// Lets a call of `store` meet a fault. The handle to go on with: a process that died comes back as another one.
pub(crate) async fn strike(
    storage: &dyn Storage,
    (store, faults): (Arc<dyn Store>, Faults),
    fault: Fault,
    name: &str,
    call: impl Future<Output = Result<(), StoreError>>,
) -> Arc<dyn Store> {
    let told = match storage.is_hooked() {
        true => {
            faults.arm(fault);
            let told = call.await;
            assert_eq!(faults.fired(), 1, "{name} has no COMMIT");
            told
        }
        false => match fault {
            Fault::BeforeCommit => Err(StoreError::Retryable { detail: String::new() }),
            _ => call.await.and(Err(StoreError::CommitUnknown)),
        },
    };
    assert!(told.is_err(), "{name} with {fault:?}");
    match fault {
        Fault::Dies => storage.open(&Faults::default()).await,
        _ => store,
    }
}

/// Fails unless each method of the traits in these texts is in exactly one of the lists.
pub(crate) fn assert_complete(texts: &[&'static str], written: &BTreeSet<&str>, reads: &[&str]) {
    let lines = texts.iter().flat_map(|text| text.lines());
    let names = lines.filter_map(|line| line.trim().strip_prefix("async fn "));
    let methods: BTreeSet<_> = names.map(|rest| rest.split('(').next().unwrap()).collect();
    let known: BTreeSet<_> = written.iter().copied().chain(reads.iter().copied()).collect();
    assert_eq!(known, methods, "a new method gets a line in OPERATIONS or in READS");
    assert_eq!(written.len() + reads.len(), known.len(), "a method is in one list only");
}
