//! One limiter per host: how many requests at a time, and not before when. Everything that asks a host goes through it.

use std::{
    collections::HashMap,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::HttpError;

#[derive(Debug, Default)]
struct Host {
    in_flight: usize,
    not_before: Option<Instant>,
}

/// Limits the requests of a process to each host.
#[derive(Debug)]
pub struct HostLimiter {
    per_host: usize,
    hosts: Mutex<HashMap<String, Host>>,
    changed: Condvar,
}

/// How often a waiting thread looks whether it was asked to stop.
const LOOK: Duration = Duration::from_millis(50);

impl HostLimiter {
    /// At most `per_host` requests to one host at a time.
    pub fn new(per_host: usize) -> Self {
        Self { per_host: per_host.max(1), hosts: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place at `host` (and until the host takes requests again), and holds it until the permit is dropped.
    ///
    /// # Errors
    /// [`HttpError::Interrupted`] once `stop` is set.
    pub fn enter(&self, host: &str, stop: &AtomicBool) -> Result<Permit<'_>, HttpError> {
        let mut hosts = self.lock();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(HttpError::Interrupted);
            }
            let entry = hosts.entry(host.to_owned()).or_default();
            let wait = entry.not_before.and_then(|until| until.checked_duration_since(Instant::now()));
            let wait = wait.filter(|wait| !wait.is_zero());
            if wait.is_none() && entry.in_flight < self.per_host {
                entry.in_flight += 1;
                return Ok(Permit { limiter: self, host: host.to_owned() });
            }
            let nap = wait.map_or(LOOK, |wait| wait.min(LOOK));
            hosts = self.changed.wait_timeout(hosts, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nobody asks `host` again before `wait` has passed.
    pub fn hold_back(&self, host: &str, wait: Duration) {
        let mut hosts = self.lock();
        let entry = hosts.entry(host.to_owned()).or_default();
        let until = Instant::now() + wait;
        entry.not_before = Some(entry.not_before.map_or(until, |earlier| earlier.max(until)));
    }
}

/// A place at a host.
#[derive(Debug)]
pub struct Permit<'a> {
    limiter: &'a HostLimiter,
    host: String,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.limiter.lock().get_mut(&self.host) {
            host.in_flight -= 1;
        }
        self.limiter.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    #[test]
    fn hosts_are_limited_apart() {
        let limiter = HostLimiter::new(1);
        let first = limiter.enter("a", &GO).unwrap();
        let _other = limiter.enter("b", &GO).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| limiter.enter("a", &GO).map(|_| Instant::now()));
            std::thread::sleep(Duration::from_millis(120));
            let released = Instant::now();
            drop(first);
            assert!(waiting.join().unwrap().unwrap() >= released);
        });
    }

    #[test]
    fn everybody_waits_for_a_host_that_asked_for_it() {
        let limiter = HostLimiter::new(4);
        let begun = Instant::now();
        limiter.hold_back("a", Duration::from_millis(150));
        limiter.hold_back("a", Duration::from_millis(10));
        drop(limiter.enter("b", &GO).unwrap());
        assert!(begun.elapsed() < Duration::from_millis(100));
        drop(limiter.enter("a", &GO).unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(150));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let limiter = HostLimiter::new(1);
        limiter.hold_back("a", Duration::from_secs(3600));
        let stop = AtomicBool::new(true);
        assert!(matches!(limiter.enter("a", &stop), Err(HttpError::Interrupted)));
    }
}
