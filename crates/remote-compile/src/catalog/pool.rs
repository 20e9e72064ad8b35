//! A few threads for the work of this machine: tasks in, results out as they come.
//!
//! What can go wrong: a task panics (its panic goes on in the thread that asks for results, so that nobody waits for a result
//! that never comes).

use std::{
    any::Any,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::Scope,
};

/// Hands tasks to the threads; a copy of it may be used elsewhere.
pub(super) struct Tasks<T> {
    queue: Sender<T>,
    /// Tasks that were handed over and whose results nobody has seen.
    open: Arc<AtomicUsize>,
}

impl<T> Clone for Tasks<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), open: Arc::clone(&self.open) }
    }
}

impl<T> Tasks<T> {
    /// Has the task done as soon as a thread is free.
    pub(super) fn hand_over(&self, task: T) {
        self.open.fetch_add(1, Ordering::SeqCst);
        // The threads take tasks for as long as anybody can hand some over.
        let _ = self.queue.send(task);
    }
}

/// The threads, which end when this and every copy of its [`Tasks`] are dropped.
pub(super) struct Pool<T, R> {
    tasks: Tasks<T>,
    results: Receiver<Result<R, Box<dyn Any + Send>>>,
}

impl<T: Send, R: Send> Pool<T, R> {
    /// Starts `threads` threads that do `work`.
    pub(super) fn start<'s, 'e>(
        scope: &'s Scope<'s, 'e>,
        threads: NonZeroUsize,
        work: impl Fn(T) -> R + Send + Sync + 's,
    ) -> Self
    where
        T: 's,
        R: 's,
    {
        let (queue, waiting) = channel();
        let (done, results) = channel();
        let (waiting, work) = (Arc::new(Mutex::new(waiting)), Arc::new(work));
        for _ in 0..threads.get() {
            let (waiting, work, done) = (Arc::clone(&waiting), Arc::clone(&work), done.clone());
            scope.spawn(move || {
                while let Some(task) = next(&waiting) {
                    if done.send(catch_unwind(AssertUnwindSafe(|| work(task)))).is_err() {
                        return;
                    }
                }
            });
        }
        Self { tasks: Tasks { queue, open: Arc::default() }, results }
    }

    /// Where tasks are handed over.
    pub(super) const fn tasks(&self) -> &Tasks<T> {
        &self.tasks
    }

    /// A result that is there already.
    pub(super) fn ready(&self) -> Option<R> {
        self.results.try_recv().ok().map(|result| self.taken(result))
    }

    /// The next result; `None` when there is none left to come.
    pub(super) fn wait(&self) -> Option<R> {
        if self.tasks.open.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.results.recv().ok().map(|result| self.taken(result))
    }

    fn taken(&self, result: Result<R, Box<dyn Any + Send>>) -> R {
        self.tasks.open.fetch_sub(1, Ordering::SeqCst);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn next<T>(waiting: &Mutex<Receiver<T>>) -> Option<T> {
    // Whoever has the lock waits for a task, the others for the lock.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Does `work` for each item with up to `threads` threads; results in the items' order.
pub(super) fn map<T: Send, R: Send>(
    threads: NonZeroUsize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Send + Sync,
) -> Vec<R> {
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads = threads.min(NonZeroUsize::new(items.len()).unwrap_or(NonZeroUsize::MIN));
        let pool = Pool::start(scope, threads, |(index, item)| (index, work(item)));
        items.into_iter().enumerate().for_each(|item| pool.tasks().hand_over(item));
        std::iter::from_fn(|| pool.wait()).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[test]
    fn results_have_the_order_of_their_items_and_no_more_threads_work_than_asked_for() {
        for count in [1, 3] {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let squares = map(threads(count), (0..20_u64).collect(), |number| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20 - number));
                now.fetch_sub(1, Ordering::SeqCst);
                number * number
            });
            assert_eq!(squares, (0..20).map(|number| number * number).collect::<Vec<u64>>());
            assert_eq!(most.into_inner(), count);
        }
        assert!(map(threads(4), Vec::<u8>::new(), |number| number).is_empty());
    }

    #[test]
    fn a_panic_is_not_lost() {
        let panicked = catch_unwind(|| map(threads(2), vec![1, 2, 3], |number| assert_ne!(number, 2)));
        assert!(panicked.is_err());
    }
}
