//! The thread environment's queue, workers, and what has finished.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deconvoy_pool::{Need, Parker, Pool, Queue, Rest, Ticket};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use pyo3::{PyTraverseError, intern};

use super::runner::{Runner, set_worker, with_worker};
use super::wait::wait;
use super::{Future, lock, run};

/// The part of the thread environment that has to be quick.
#[pyclass(subclass, frozen, weakref, module = "deconvoy._native")]
#[derive(Debug)]
pub struct ThreadPool {
    pub pool: Pool<Py<Future>>,
    pub running: Mutex<Vec<Py<Future>>>,
    /// Those that nobody has asked for yet, in the order of finishing.
    finished: Mutex<Queue<Py<Future>>>,
    /// Who waits for any.
    any: Mutex<Vec<Arc<Parker>>>,
    /// How many these are.
    any_count: AtomicUsize,
    /// Killed ones whose threads have not come back.
    pub stuck: AtomicUsize,
    idle: Duration,
    before: Py<PyList>,
    after: Py<PyList>,
}

impl ThreadPool {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Queues a new future.
    pub fn push(&self, future: &Bound<'_, Future>) -> Ticket {
        let item = future.clone().unbind();
        with_worker(self.address(), |worker| self.pool.push(item, worker.as_deref()))
    }

    /// Makes a worker if one is needed.
    pub fn meets_need(slf: &Bound<'_, ThreadPool>) -> PyResult<()> {
        let pool = &slf.get().pool;
        while pool.need() == Need::Worker {
            if let Err(error) = slf.call_method0(intern!(slf.py(), "_make_worker")) {
                // No thread can be made, at the end of the interpreter: whoever touches it runs it.
                let is_expected = error.is_instance_of::<PyRuntimeError>(slf.py());
                return if is_expected { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// A worker of it is blocked or lost.
    pub fn makes_room(slf: &Bound<'_, ThreadPool>) -> PyResult<()> {
        slf.get().pool.leave();
        ThreadPool::meets_need(slf)
    }

    /// One is about to be over that nobody is touching: it may be asked for.
    pub fn finishes(&self, future: &Bound<'_, Future>) {
        let mut finished = lock(&self.finished);
        let place = finished.push(future.clone().unbind());
        lock(&future.get().inner).finished = Some(place);
    }

    /// Nobody needs to be told of this one any more.
    pub fn forget(&self, future: &Bound<'_, Future>) {
        let Some(place) = lock(&future.get().inner).finished.take() else { return };
        let forgotten = lock(&self.finished).take(place, |one| one.is(future));
        drop(forgotten);
    }

    /// Those who wait for any look again.
    pub fn tell_any(&self) {
        if self.any_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.any_count.store(0, Ordering::SeqCst);
        for waiter in std::mem::take(&mut *lock(&self.any)) {
            waiter.tell();
        }
    }

    /// Whether nothing is left but what the calling thread itself runs.
    fn is_idle_but_for(&self, runner: &Arc<Runner>) -> bool {
        // Nor what those run that wait in the same way.
        let waits =
            |it: &Arc<Runner>| Arc::ptr_eq(it, runner) || it.waits_for_any.load(Ordering::SeqCst);
        let is_mine = |one: &Py<Future>| lock(&one.get().inner).runner.as_ref().is_some_and(waits);
        self.pool.pending() == 0 && lock(&self.running).iter().all(is_mine)
    }

    pub fn hooks(&self, py: Python<'_>, is_start: bool) -> Option<Vec<Py<PyAny>>> {
        let list = if is_start { &self.before } else { &self.after }.bind(py);
        (!list.is_empty()).then(|| list.iter().map(Bound::unbind).collect())
    }
}

#[pymethods]
impl ThreadPool {
    /// `limit`: how many run at a time; `idle_s`: how long a worker stays when there is nothing to do, in
    /// seconds; `before`, `after`: lists of functions that are called with each future.
    #[new]
    #[pyo3(signature = (limit, idle_s, before, after, *_more, **_keywords))]
    fn new(
        limit: usize,
        idle_s: f64,
        before: Py<PyList>,
        after: Py<PyList>,
        _more: &Bound<'_, pyo3::types::PyTuple>,
        _keywords: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<ThreadPool> {
        let wrong = || PyValueError::new_err("idle_s must be 0 or more");
        if idle_s.is_nan() || idle_s < 0.0 {
            return Err(wrong());
        }
        Ok(ThreadPool {
            pool: Pool::new(limit),
            running: Mutex::default(),
            finished: Mutex::default(),
            any: Mutex::default(),
            any_count: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
            idle: Duration::try_from_secs_f64(idle_s).unwrap_or(Duration::MAX),
            before,
            after,
        })
    }

    /// Works until there is nothing to do for long: what a worker's thread runs.
    fn _work(slf: &Bound<'_, ThreadPool>) -> PyResult<()> {
        let py = slf.py();
        let me = slf.get();
        let pool = &me.pool;
        let address = me.address();
        let runner = Runner::here(py)?;
        runner.joins(slf.clone().unbind());
        set_worker(Some((address, pool.join())));
        let next = || with_worker(address, |worker| worker.and_then(|worker| pool.next(worker)));
        let mut after = Vec::new();
        loop {
            while let Some(future) = next() {
                tell(&after);
                after = run::run_as_worker(future.bind(py), &runner)?;
                drop(future);
                if !after.is_empty() && pool.has_work() {
                    tell(&after);
                    after.clear();
                }
            }
            let rest = py.detach(|| {
                // Only now: whoever is woken needs the GIL.
                tell(&after);
                if pool.has_work() {
                    return Rest::Awake;
                }
                with_worker(address, |worker| match worker {
                    Some(worker) => pool.rest(worker, me.idle),
                    None => Rest::Over,
                })
            });
            after.clear();
            if rest == Rest::Over {
                set_worker(None);
                runner.leaves();
                return Ok(());
            }
        }
    }

    /// How many have a place to run, and how many wait for one.
    #[getter]
    fn counts(&self) -> (usize, usize) {
        let pool = &self.pool;
        let running = lock(&self.running).len();
        let waiting = pool.pending();
        let places = pool.limit().saturating_sub(running).min(waiting);
        (running + places, waiting - places)
    }

    /// How many run at a time, at most.
    #[getter]
    fn max_threads(&self) -> usize {
        self.pool.limit()
    }

    #[setter]
    fn set_max_threads(slf: &Bound<'_, ThreadPool>, limit: i64) -> PyResult<()> {
        let Some(limit) = usize::try_from(limit).ok().filter(|limit| *limit > 0) else {
            return Err(PyValueError::new_err("max_threads must be 1 or more"));
        };
        let pool = &slf.get().pool;
        pool.set_limit(limit);
        // One for each that waits.
        (0..pool.pending()).try_for_each(|_| ThreadPool::meets_need(slf))
    }

    /// Threads that still run a future that was killed.
    #[getter]
    fn stuck(&self) -> usize {
        self.stuck.load(Ordering::SeqCst)
    }

    /// Called with each future before it runs, in the thread that runs it.
    #[getter]
    fn before_start_hooks(&self, py: Python<'_>) -> Py<PyList> {
        self.before.clone_ref(py)
    }

    /// Called with each future after it has run, in the thread that ran it.
    #[getter]
    fn after_finish_hooks(&self, py: Python<'_>) -> Py<PyList> {
        self.after.clone_ref(py)
    }

    /// The one that finished first of those that nobody has asked for.
    fn _take_finished(&self, py: Python<'_>) -> PyResult<Option<Py<Future>>> {
        let Some(future) = lock(&self.finished).pop_oldest() else { return Ok(None) };
        lock(&future.get().inner).finished = None;
        // A moment before it is.
        wait(future.bind(py), None)?;
        Ok(Some(future))
    }

    /// All futures that are not over: those that run, but for the calling thread's own, then those that
    /// wait.
    fn _unfinished(&self, py: Python<'_>) -> PyResult<Vec<Py<Future>>> {
        let runner = Runner::here(py)?;
        let is_others = |one: &&Py<Future>| {
            !lock(&one.get().inner).runner.as_ref().is_some_and(|it| Arc::ptr_eq(it, &runner))
        };
        let running = lock(&self.running);
        let mut all: Vec<_> =
            running.iter().filter(is_others).map(|one| one.clone_ref(py)).collect();
        drop(running);
        let waiting = self.pool.list(|one| one.clone_ref(py));
        all.extend(waiting);
        Ok(all)
    }

    /// Waits until any finishes that was not asked for, at most so many seconds; False: there is none
    /// left that could.
    #[pyo3(signature = (timeout = None))]
    fn _wait_any(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let runner = Runner::here(py)?;
        runner.blocks(py)?;
        let before = runner.waits_for_any.swap(true, Ordering::SeqCst);
        // Who waits likewise may be the last that others wait for.
        self.tell_any();
        let waited = super::wait::park_until(py, timeout, |parker| {
            let mut any = lock(&self.any);
            let is_over = || !lock(&self.finished).is_empty() || self.is_idle_but_for(&runner);
            if is_over() {
                return true;
            }
            if !any.iter().any(|one| Arc::ptr_eq(one, parker)) {
                any.push(parker.clone());
            }
            self.any_count.store(any.len(), Ordering::SeqCst);
            self.pool.hurry();
            // Whoever finished one before that was counted has told nobody.
            is_over()
        });
        runner.waits_for_any.store(before, Ordering::SeqCst);
        runner.unblocks(py);
        waited?;
        Ok(!lock(&self.finished).is_empty() || !self.is_idle_but_for(&runner))
    }

    /// Somebody waits for what is queued.
    fn _hurry(&self) {
        self.pool.hurry();
    }

    /// A worker that was counted has not begun.
    fn _leave(&self) {
        self.pool.leave();
    }

    /// Workers end when there is nothing left to do.
    fn _close(&self) {
        self.pool.close();
    }

    /// In a child after a fork: there are no workers, and what ran does not run here.
    fn _after_fork(&self) -> Vec<Py<Future>> {
        self.pool.after_fork();
        super::runner::forget_here();
        self.stuck.store(0, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.running))
    }

    // What is queued is none of its: a worker has it then, which is alive.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.before)?;
        visit.call(&self.after)?;
        // Whoever holds the lock is at work with it: it is alive.
        let Ok(finished) = self.finished.try_lock() else { return Ok(()) };
        finished.iter().try_for_each(|future| visit.call(future))
    }

    fn __clear__(&self) {
        let cleared = std::mem::take(&mut *lock(&self.finished));
        drop(cleared);
    }
}

fn tell(waiters: &[Arc<Parker>]) {
    for waiter in waiters {
        waiter.tell();
    }
}

/// What came of a killed future.
pub fn killed(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    error_class(py, &CLASS, "FutureKilled")?.call1(("it was killed",))
}

/// `deconvoy.futures.ThreadKilled`: what the thread is told by that runs one.
pub fn told_class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    error_class(py, &CLASS, "ThreadKilled")
}

fn error_class<'py>(
    py: Python<'py>,
    class: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let class = class.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("deconvoy.futures.errors")?.getattr(name)?.unbind())
    })?;
    Ok(class.bind(py))
}
