//! Back-pressure in bytes, and the first failure of a pipeline.

use std::sync::{Condvar, Mutex};

use crate::error::{Error, ErrorKind, Result};
use crate::exec::{ASK_EVERY, lock};

/// Lets bytes into the pipeline up to a limit. Once failed, everybody gets the first failure.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    limit: u64,
}

#[derive(Debug, Default)]
struct State {
    inside: u64,
    failure: Option<Error>,
}

impl Gate {
    pub(super) fn new(limit: u64) -> Self {
        Gate { state: Mutex::default(), changed: Condvar::new(), limit }
    }

    /// Waits until `bytes` fit. Something larger than the limit is let in alone. While it waits, `interrupted`
    /// is asked every tenth of a second whether to give up, which is a failure like any other.
    pub(super) fn enter(&self, bytes: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.inside == 0 || state.inside.saturating_add(bytes) <= self.limit {
                state.inside = state.inside.saturating_add(bytes);
                return Ok(());
            }
            let waited = self.changed.wait_timeout(state, ASK_EVERY);
            let (again, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            state = again;
            if timeout.timed_out() {
                // Not with the lock held: the answer may take a call into the caller's own code.
                drop(state);
                if interrupted() {
                    self.fail(interrupted_write());
                }
                state = lock(&self.state);
            }
        }
    }

    /// Lets `bytes` in only if that needs no waiting.
    pub(super) fn enter_if_room(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        let room = state.failure.is_none()
            && (state.inside == 0 || state.inside.saturating_add(bytes) <= self.limit);
        if room {
            state.inside = state.inside.saturating_add(bytes);
        }
        room
    }

    /// `bytes` have left the pipeline.
    pub(super) fn leave(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.inside = state.inside.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Keeps the first failure and wakes everybody.
    pub(super) fn fail(&self, error: Error) {
        lock(&self.state).failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// The first failure, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        lock(&self.state).failure.clone().map_or(Ok(()), Err)
    }
}

/// The failure of a write that was told to give up.
pub(super) fn interrupted_write() -> Error {
    Error::new(ErrorKind::Closed, "the write was interrupted; run it again to resume")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn large_things_pass_alone_and_failures_wake_waiters() {
        let gate = std::sync::Arc::new(Gate::new(10));
        gate.enter(100, &mut || false).unwrap();
        let waiting = {
            let gate = std::sync::Arc::clone(&gate);
            std::thread::spawn(move || gate.enter(1, &mut || false))
        };
        gate.fail(Error::new(ErrorKind::NoSpace, "full"));
        gate.fail(Error::new(ErrorKind::Io, "later"));
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(gate.check().unwrap_err().kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn an_interrupted_wait_is_the_failure_of_all() {
        let gate = Gate::new(10);
        gate.enter(10, &mut || false).unwrap();
        assert_eq!(gate.enter(1, &mut || true).unwrap_err().kind(), ErrorKind::Closed);
        assert!(gate.check().is_err());
    }

    #[test]
    fn leaving_lets_the_next_in() {
        let gate = Gate::new(10);
        gate.enter(10, &mut || false).unwrap();
        gate.leave(10);
        gate.enter(10, &mut || false).unwrap();
    }
}
