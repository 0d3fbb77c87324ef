//! The clock of ownership.
//!
//! Tokens give safety and the clock only liveness: a jump of the wall clock must never let two owners commit, nor make
//! anybody wait for hours. [`HostClock`] therefore reads the wall clock once and then follows the clock that the host
//! counts from its start, which nobody sets and which goes on while the host sleeps.
//!
//! That suffices for one process. Several on one SQLite file read the wall clock at different moments, with a jump in
//! between perhaps. So the file keeps, for each start of the host, which time the zero of [`HostTime`] was: read from
//! the wall clock once, by whoever writes first, and taken by everybody (`sqlite/clock.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use system::SystemHost;

/// Milliseconds since the Unix epoch, as this store counts them.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, in milliseconds since the Unix epoch. Never goes back within one clock.
    fn now_ms(&self) -> i64;

    /// What the clock is made of, if other processes of the host can agree with it about now. A SQLite store then goes
    /// by the time that its file keeps for all of them; without, it goes by [`Clock::now_ms`].
    fn host(&self) -> Option<Arc<dyn HostTime>> {
        None
    }
}

/// The clocks of one host, before anybody has said which time it is.
pub trait HostTime: Send + Sync + std::fmt::Debug {
    /// Names this start of the host, alike for all of its processes; `None` when the host does not tell.
    fn boot_id(&self) -> Option<&str>;

    /// How long ago the host was started. All processes that read the same [`HostTime::boot_id`] read the same.
    fn since_boot(&self) -> SinceBoot;

    /// The wall clock, in milliseconds since the Unix epoch. May jump.
    fn wall_ms(&self) -> i64;
}

/// A reading of the clocks that count from the start of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinceBoot {
    /// Milliseconds since the start, with those in which the host slept.
    pub up_ms: i64,
    /// Milliseconds of these in which the host slept and no process ran. Never more than the truth.
    pub slept_ms: i64,
}

/// The wall clock at construction, carried on by the clock that the host counts from its start.
#[derive(Debug, Clone)]
pub struct HostClock {
    host: Arc<dyn HostTime>,
    zero_ms: i64,
}

impl HostClock {
    /// Reads the wall clock of this host once.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::new(SystemHost::new()))
    }

    /// Reads the wall clock of `host` once.
    #[must_use]
    pub fn on(host: Arc<dyn HostTime>) -> Self {
        let zero_ms = host.wall_ms().saturating_sub(host.since_boot().up_ms);
        Self { host, zero_ms }
    }

    /// Ends after `ms` milliseconds, by the timer of the Tokio runtime that it is awaited in: for hosts that want time
    /// from one place.
    pub async fn sleep(ms: u64) {
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock {
    fn now_ms(&self) -> i64 {
        self.zero_ms.saturating_add(self.host.since_boot().up_ms)
    }

    fn host(&self) -> Option<Arc<dyn HostTime>> {
        Some(Arc::clone(&self.host))
    }
}

fn wall_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The host that this process runs on, as its kernel tells.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod system {
    use std::sync::OnceLock;

    use nix::time::{ClockId, clock_gettime};

    use super::{HostTime, SinceBoot};

    /// Counts while the host sleeps.
    #[cfg(target_os = "linux")]
    const UP: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const UP: ClockId = ClockId::CLOCK_MONOTONIC;
    /// On Linux it stands still while the host sleeps.
    const RAN: ClockId = ClockId::CLOCK_MONOTONIC;

    /// This host. Without Linux's `/proc` it has no boot id.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct SystemHost(());

    /// What does not change while a process runs.
    #[derive(Debug, Default)]
    struct Facts {
        boot_id: Option<String>,
        /// What a container's time namespace adds to the two clocks, in milliseconds.
        up_offset_ms: i64,
        ran_offset_ms: i64,
    }

    /// Read once: three files of `/proc`, which no disk is asked for.
    fn facts() -> &'static Facts {
        static FACTS: OnceLock<Facts> = OnceLock::new();
        FACTS.get_or_init(|| {
            let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let offsets = offsets();
            let boot_id = Some(id.trim().to_owned()).filter(|id| !id.is_empty() && offsets.is_some());
            let (ran_offset_ms, up_offset_ms) = offsets.unwrap_or_default();
            Facts { boot_id, up_offset_ms, ran_offset_ms }
        })
    }

    /// What the time namespace of this process adds to (CLOCK_MONOTONIC, CLOCK_BOOTTIME), in milliseconds; `None` when
    /// that cannot be told. Two containers may share a file and a boot id, and count from different zeros.
    fn offsets() -> Option<(i64, i64)> {
        let Ok(own) = std::fs::read_link("/proc/self/ns/time") else { return Some((0, 0)) };
        // The file speaks of the namespace of children, which is another one only between unshare(2) and fork(2).
        if std::fs::read_link("/proc/self/ns/time_for_children").ok()? != own {
            return None;
        }
        parse_offsets(&std::fs::read_to_string("/proc/self/timens_offsets").ok()?)
    }

    /// Lines of a clock's name, seconds and nanoseconds, see time_namespaces(7).
    pub(super) fn parse_offsets(text: &str) -> Option<(i64, i64)> {
        let of = |name: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
            let mut numbers = line.split_whitespace().skip(1).map(str::parse::<i64>);
            let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
            seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)
        };
        Some((of("monotonic")?, of("boottime")?))
    }

    fn read(clock: ClockId) -> i64 {
        // The clocks exist since Linux 2.6.39; a reading cannot fail there.
        let Ok(time) = clock_gettime(clock) else { return 0 };
        // The fields are smaller on machines of 32 bits.
        #[allow(clippy::useless_conversion, reason = "i64 on most machines")]
        let (seconds, nanos) = (i64::from(time.tv_sec()), i64::from(time.tv_nsec()));
        seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
    }

    impl SystemHost {
        /// This host.
        #[must_use]
        pub fn new() -> Self {
            Self(())
        }
    }

    impl HostTime for SystemHost {
        fn boot_id(&self) -> Option<&str> {
            facts().boot_id.as_deref()
        }

        fn since_boot(&self) -> SinceBoot {
            let facts = facts();
            // In this order: a pause of this thread between the two can hide sleep, never invent it.
            let up_ms = read(UP).saturating_sub(facts.up_offset_ms);
            let ran_ms = read(RAN).saturating_sub(facts.ran_offset_ms);
            SinceBoot { up_ms, slept_ms: up_ms.saturating_sub(ran_ms).max(0) }
        }

        fn wall_ms(&self) -> i64 {
            super::wall_ms()
        }
    }
}

/// The host, for a program without a database: no other process has to agree.
#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
mod system {
    use std::time::Instant;

    use super::{HostTime, SinceBoot};

    /// This host, counted from the construction of this value.
    #[derive(Debug, Clone, Copy)]
    pub struct SystemHost(Instant);

    impl SystemHost {
        /// This host.
        #[must_use]
        pub fn new() -> Self {
            Self(Instant::now())
        }
    }

    impl Default for SystemHost {
        fn default() -> Self {
            Self::new()
        }
    }

    impl HostTime for SystemHost {
        fn boot_id(&self) -> Option<&str> {
            None
        }

        fn since_boot(&self) -> SinceBoot {
            SinceBoot { up_ms: i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX), slept_ms: 0 }
        }

        fn wall_ms(&self) -> i64 {
            super::wall_ms()
        }
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock by `ms`, which may be negative.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A host whose clocks move only when told to, for tests. Clones are the same host with the same wall clock.
#[derive(Debug, Clone)]
pub struct ManualHost {
    boot_id: Option<String>,
    since: Arc<(AtomicI64, AtomicI64)>,
    wall_zero_ms: Arc<AtomicI64>,
}

impl ManualHost {
    /// A host that was started `up_ms` ago and never slept, and whose wall clock says `wall_ms`.
    #[must_use]
    pub fn new(boot_id: Option<&str>, up_ms: i64, wall_ms: i64) -> Self {
        Self {
            boot_id: boot_id.map(str::to_owned),
            since: Arc::new((AtomicI64::new(up_ms), AtomicI64::new(0))),
            wall_zero_ms: Arc::new(AtomicI64::new(wall_ms.saturating_sub(up_ms))),
        }
    }

    /// The same host, as a process sees it that reads another wall clock: one that is `ms` ahead of this one.
    #[must_use]
    pub fn with_wall_ahead(&self, ms: i64) -> Self {
        let zero_ms = self.wall_zero_ms.load(Ordering::SeqCst).saturating_add(ms);
        Self { wall_zero_ms: Arc::new(AtomicI64::new(zero_ms)), ..self.clone() }
    }

    /// Lets time pass.
    pub fn pass(&self, ms: i64) {
        self.since.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// Lets time pass in which the host sleeps.
    pub fn sleep(&self, ms: i64) {
        self.since.0.fetch_add(ms, Ordering::SeqCst);
        self.since.1.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock forward by `ms`, which may be negative.
    pub fn jump(&self, ms: i64) {
        self.wall_zero_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl HostTime for ManualHost {
    fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    fn since_boot(&self) -> SinceBoot {
        SinceBoot { up_ms: self.since.0.load(Ordering::SeqCst), slept_ms: self.since.1.load(Ordering::SeqCst) }
    }

    fn wall_ms(&self) -> i64 {
        self.wall_zero_ms.load(Ordering::SeqCst).saturating_add(self.since_boot().up_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_clock_follows_the_host_and_not_the_wall_clock() {
        let host = ManualHost::new(Some("boot"), 5_000, 1_000_000);
        let clock = HostClock::on(Arc::new(host.clone()));
        assert_eq!(clock.now_ms(), 1_000_000);
        host.pass(10);
        host.jump(3_600_000);
        assert_eq!(clock.now_ms(), 1_000_010);
        host.sleep(100);
        assert_eq!(clock.now_ms(), 1_000_110);
        assert_eq!(host.since_boot(), SinceBoot { up_ms: 5_110, slept_ms: 100 });
    }

    #[test]
    fn this_host_counts_from_its_start() {
        let host = SystemHost::new();
        let first = host.since_boot();
        let second = host.since_boot();
        assert!(first.up_ms <= second.up_ms);
        assert!(first.slept_ms <= first.up_ms);
        // Long after this was written, so that seconds are not taken for milliseconds.
        assert!(HostClock::new().now_ms() > 1_700_000_000_000);
        #[cfg(all(target_os = "linux", feature = "sqlite"))]
        {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
            #[expect(clippy::cast_possible_truncation, reason = "an uptime")]
            let uptime_ms = (seconds * 1_000.0) as i64;
            assert!(host.boot_id().is_some());
            // A time namespace shows another uptime than the host's.
            let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
            let uptime_ms = uptime_ms - system::parse_offsets(&offsets).unwrap_or_default().1;
            assert!(second.up_ms <= uptime_ms + 10 && uptime_ms - second.up_ms < 600_000, "{second:?} {uptime_ms}");
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let parse = system::parse_offsets;
        assert_eq!(parse("monotonic           0         0\nboottime            0         0\n"), Some((0, 0)));
        assert_eq!(parse("monotonic -5 0\nboottime 100000 250000000\n"), Some((-5_000, 100_000_250)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("monotonic 1 0\nboottime x 0\n"), None);
    }
}
