//! Named threads that end with their owner, and failures that are kept.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, invalid};

/// How often somebody who waits, or works for long, is asked whether to give up.
pub const ASK_EVERY: Duration = Duration::from_millis(100);

/// Asks during long work, ten times a second at most, whether to give up.
pub struct Watch<'a> {
    interrupted: &'a mut dyn FnMut() -> bool,
    asked: Instant,
}

impl<'a> Watch<'a> {
    /// Asks for the first time after a tenth of a second.
    pub fn new(interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        Watch { interrupted, asked: Instant::now() }
    }

    /// To be called at every step of the work, each of which takes much less than a second.
    ///
    /// # Errors
    ///
    /// `closed` if the answer was to give up.
    pub fn check(&mut self) -> Result<()> {
        if self.asked.elapsed() < ASK_EVERY {
            return Ok(());
        }
        self.asked = Instant::now();
        if (self.interrupted)() { Err(interrupted()) } else { Ok(()) }
    }
}

/// The error of a call that was told to give up.
pub fn interrupted() -> Error {
    Error::new(ErrorKind::Closed, "the call was interrupted; make it again")
}

/// Threads this process may use: CPU affinity and control-group quota are respected.
pub fn thread_budget() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The number of threads to start: what was asked for, at least one, or the budget.
pub fn threads_or_budget(threads: Option<usize>) -> Result<usize> {
    const MOST: usize = 1024;
    match threads {
        None => Ok(thread_budget()),
        Some(n @ 1..=MOST) => Ok(n),
        Some(n) => {
            Err(invalid(format!("threads is {n}; choose 1 to {MOST}, or None for the machine's budget")))
        }
    }
}

/// Starts a named thread. A panic inside becomes the error of [`join`].
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    let guarded = move || guard("a worker thread", work);
    std::thread::Builder::new().name(name.to_owned()).spawn(guarded).map_err(|e| {
        Error::new(
            ErrorKind::Io,
            format!("cannot start thread '{name}': {e}; raise the process limit or use fewer threads"),
        )
    })
}

/// Runs `beside` on a thread of its own and `here` on this one, both to their end. Where no thread can be had, they run
/// one after the other.
pub fn both<A: Send, B>(
    name: &str,
    beside: impl FnOnce() -> Result<A> + Send,
    here: impl FnOnce() -> Result<B>,
) -> (Result<A>, Result<B>) {
    let beside = Mutex::new(Some(beside));
    let run = || lock(&beside).take().map(|work| guard("a helping thread", work));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
        let here = guard("a call", here);
        let found = thread.ok().and_then(|thread| thread.join().ok().flatten());
        (found.or_else(run).unwrap_or_else(|| Err(bug("a helping thread"))), here)
    })
}

/// Waits for a thread and gives its result.
pub fn join<T>(handle: JoinHandle<Result<T>>) -> Result<T> {
    handle.join().unwrap_or_else(|_| Err(bug("a worker thread")))
}

/// Runs `work`; a panic becomes an error. The last line of defence, not a way to report errors.
pub fn guard<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(bug(what)))
}

fn bug(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("{what} panicked: a bug in datasetrt; please report it with the text on stderr"),
    )
}

/// Locks a mutex; data behind a poisoned one is still consistent here, because a failure is kept beside it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let handle = spawn("t", || -> Result<()> { panic!("on purpose") }).unwrap();
        assert_eq!(join(handle).unwrap_err().kind(), ErrorKind::Bug);
    }

    #[test]
    fn two_calls_run_to_their_ends_whatever_the_other_does() {
        let (a, b) = both("t", || Ok(1), || Ok("b"));
        assert_eq!((a.unwrap(), b.unwrap()), (1, "b"));
        let (a, b) = both("t", || -> Result<()> { panic!("on purpose") }, || Ok(2));
        assert_eq!((a.unwrap_err().kind(), b.unwrap()), (ErrorKind::Bug, 2));
        let (a, b) = both("t", || Ok(1), || -> Result<()> { panic!("on purpose") });
        assert_eq!((a.unwrap(), b.unwrap_err().kind()), (1, ErrorKind::Bug));
    }

    #[test]
    fn a_watch_asks_now_and_then_and_passes_the_answer_on() {
        let mut asked = 0;
        let mut ask = || {
            asked += 1;
            asked == 2
        };
        let mut watch = Watch::new(&mut ask);
        let error = loop {
            if let Err(error) = watch.check() {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(asked, 2);
    }

    #[test]
    fn absurd_thread_counts_are_refused() {
        assert!(threads_or_budget(Some(0)).is_err());
        assert!(threads_or_budget(Some(100_000)).is_err());
        assert!(threads_or_budget(None).unwrap() >= 1);
    }
}
