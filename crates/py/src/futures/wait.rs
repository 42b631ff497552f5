//! How a thread waits for a future, and gets what came of it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deconvoy_pool::{Parked, Parker};
use pyo3::exceptions::{PyBaseException, PyRuntimeError, PyTimeoutError};
use pyo3::intern;
use pyo3::prelude::*;

use super::environment::killed;
use super::runner::Runner;
use super::{CANCELLED, DONE, FAILED, Future, Outcome, PENDING, RUNNING, lock, run};

/// The result of a future, or the error raised. Runs it in the calling thread if nobody has begun to;
/// with a `timeout`, in seconds, it only waits.
///
/// Raises TimeoutError, concurrent.futures.CancelledError, FutureKilled, or what the function raised.
#[pyfunction]
#[pyo3(signature = (future, timeout = None))]
pub fn touch(future: &Bound<'_, Future>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
    let me = future.get();
    if timeout.is_none() && me.state() == PENDING {
        let runner = Runner::here(future.py())?;
        runner.check_killed(future.py())?;
        if runner.may_go_deeper()
            && let Some(claimed) = run::claim(future, &runner)
        {
            let ran = run::run(future, claimed, &runner, false)?;
            ran.waiters.iter().for_each(|waiter| waiter.tell());
            runner.check_killed(future.py())?;
            return ran.value.map_or_else(|| outcome(future), Ok);
        }
    }
    wait(future, timeout)?;
    forget(future)?;
    outcome(future)
}

/// What came of a future that is over.
fn outcome(future: &Bound<'_, Future>) -> PyResult<Py<PyAny>> {
    let py = future.py();
    let me = future.get();
    match me.state() {
        DONE => match &lock(&me.inner).outcome {
            Some(Outcome::Value(value)) => Ok(value.clone_ref(py)),
            _ => Err(PyRuntimeError::new_err("the result is gone: the collector took it")),
        },
        FAILED => Err(PyErr::from_value(error(future)?)),
        CANCELLED => Err(cancelled(py)?),
        _ => Err(PyErr::from_value(killed(py)?)),
    }
}

/// What a future failed with, its traceback as it was in the thread that ran it.
fn error<'py>(future: &Bound<'py, Future>) -> PyResult<Bound<'py, PyAny>> {
    let py = future.py();
    let (error, traceback) = match &lock(&future.get().inner).outcome {
        Some(Outcome::Error { error, traceback }) => {
            (error.clone_ref(py), traceback.as_ref().map(|it| it.clone_ref(py)))
        }
        _ => return Err(PyRuntimeError::new_err("the error is gone: the collector took it")),
    };
    let error = error.into_bound(py);
    // Not by the class's own means: that may be frozen.
    let set = py.get_type::<PyBaseException>().getattr(intern!(py, "__setattr__"))?;
    set.call1((&error, intern!(py, "__traceback__"), traceback))?;
    Ok(error)
}

fn cancelled(py: Python<'_>) -> PyResult<PyErr> {
    let class = py.import("concurrent.futures")?.getattr("CancelledError")?;
    Ok(PyErr::from_value(class.call0()?))
}

/// What a future failed with; `None`: it did not.
pub fn exception(future: &Bound<'_, Future>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
    let py = future.py();
    wait(future, timeout)?;
    match future.get().state() {
        DONE => Ok(None),
        FAILED => Ok(Some(error(future)?.unbind())),
        CANCELLED => Err(cancelled(py)?),
        _ => Ok(Some(killed(py)?.unbind())),
    }
}

/// Waits until a future is over, at most `timeout` seconds. Never runs it here. `keep`: it may still be
/// asked for as one of any.
///
/// Raises TimeoutError; RuntimeError if it waits for the calling thread.
#[pyfunction]
#[pyo3(signature = (future, timeout = None, keep = false))]
pub fn wait_for(future: &Bound<'_, Future>, timeout: Option<f64>, keep: bool) -> PyResult<()> {
    wait(future, timeout)?;
    if keep { Ok(()) } else { forget(future) }
}

/// The calling thread waits for futures by other means: if it is a worker, another one works meanwhile.
#[pyfunction]
pub fn blocks(py: Python<'_>) -> PyResult<()> {
    Runner::here(py)?.blocks(py)
}

/// It goes on.
#[pyfunction]
pub fn unblocks(py: Python<'_>) -> PyResult<()> {
    Runner::here(py)?.unblocks(py);
    Ok(())
}

/// It is not returned any more as one of any: somebody has asked for it.
fn forget(future: &Bound<'_, Future>) -> PyResult<()> {
    if let Some(pool) = run::pool_of(future) {
        pool.get().forget(future);
    } else if let Some(other) = future.get().other(future.py()) {
        other.call_method1(future.py(), intern!(future.py(), "_forget"), (future,))?;
    }
    Ok(())
}

pub fn wait(future: &Bound<'_, Future>, timeout: Option<f64>) -> PyResult<()> {
    let py = future.py();
    let me = future.get();
    if me.is_over() {
        return Ok(());
    }
    if let Some(other) = me.other(py) {
        other.call_method1(py, intern!(py, "_wait"), (future, timeout))?;
        return Ok(());
    }
    let runner = Runner::here(py)?;
    let before = lock(&runner.waits_for).replace(future.clone().unbind());
    let waited = wait_for_threads(future, &runner, timeout);
    let waited_for = std::mem::replace(&mut *lock(&runner.waits_for), before);
    drop(waited_for);
    waited
}

fn wait_for_threads(
    future: &Bound<'_, Future>,
    runner: &Arc<Runner>,
    timeout: Option<f64>,
) -> PyResult<()> {
    let py = future.py();
    let me = future.get();
    if is_deadlock(future, runner) {
        let why = "a future waits for itself, by way of those that it waits for";
        return Err(PyRuntimeError::new_err(why));
    }
    if me.state() == PENDING
        && let Some(pool) = run::pool_of(future)
    {
        pool.get().pool.hurry();
    }
    runner.blocks(py)?;
    let series = Series::goes_on();
    // Only where it is worked on, and others wait behind it.
    let is_queued = || run::pool_of(future).is_some_and(|pool| pool.get().pool.has_work());
    if timeout.is_none() && me.state() == RUNNING && is_queued() {
        series.nap(py);
    }
    let waited = park_until(py, timeout, |parker| {
        let mut inner = lock(&me.inner);
        if me.is_over() {
            return true;
        }
        if !inner.waiters.iter().any(|one| Arc::ptr_eq(one, parker)) {
            inner.waiters.push(parker.clone());
        }
        false
    });
    runner.unblocks(py);
    series.ends();
    if waited.is_err() {
        lock(&me.inner).waiters.retain(|one| !Arc::ptr_eq(one, &runner.parker));
    }
    waited
}

/// A thread that waits for one future after the other, without doing much in between.
///
/// To be woken for each costs it and whoever wakes it more than a short task takes, and on as many
/// workers as cores it takes a core from one of them each time. So it looks after a while, which is a small
/// part of the time that it has waited already.
#[derive(Clone, Copy)]
struct Series {
    began: Instant,
    last: Instant,
}

/// What may lie between two waits of a series.
const PAUSE: Duration = Duration::from_micros(100);
/// A nap is this part of the series so far.
const PART: u32 = 32;
/// One that is shorter saves nothing: the system's timers are not that exact.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_micros(500);

thread_local! {
    static SERIES: Cell<Option<Series>> = const { Cell::new(None) };
}

impl Series {
    fn goes_on() -> Series {
        let now = Instant::now();
        let before = SERIES.get().filter(|it| now.duration_since(it.last) < PAUSE);
        Series { began: before.map_or(now, |it| it.began), last: now }
    }

    fn nap(self, py: Python<'_>) {
        let length = (self.last.duration_since(self.began) / PART).min(LONGEST);
        if length >= SHORTEST {
            py.detach(|| std::thread::sleep(length));
        }
    }

    fn ends(self) {
        SERIES.set(Some(Series { began: self.began, last: Instant::now() }));
    }
}

/// Whether `future` is run by a thread that waits, by way of others, for what this one runs.
fn is_deadlock(future: &Bound<'_, Future>, me: &Arc<Runner>) -> bool {
    let py = future.py();
    let mut next = future.clone().unbind();
    loop {
        let Some(runner) = lock(&next.get().inner).runner.clone() else { return false };
        if Arc::ptr_eq(&runner, me) {
            return true;
        }
        let waits_for = lock(&runner.waits_for).as_ref().map(|one| one.clone_ref(py));
        let Some(waits_for) = waits_for else { return false };
        next = waits_for;
    }
}

/// Parks the calling thread until `is_over`, which is asked after each time that it is told, and has it
/// told when there is something to see; at most `timeout` seconds. Signals are served meanwhile.
pub fn park_until(
    py: Python<'_>,
    timeout: Option<f64>,
    mut is_over: impl FnMut(&Arc<Parker>) -> bool,
) -> PyResult<()> {
    let runner = Runner::here(py)?;
    let deadline = timeout.and_then(|seconds| {
        let left = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
        Instant::now().checked_add(left)
    });
    while !is_over(&runner.parker) {
        match py.detach(|| runner.parker.park(deadline)) {
            Parked::Told => runner.check_killed(py)?,
            Parked::Interrupted => py.check_signals()?,
            Parked::TimedOut => {
                if is_over(&runner.parker) {
                    return Ok(());
                }
                return Err(PyTimeoutError::new_err(()));
            }
        }
    }
    Ok(())
}
