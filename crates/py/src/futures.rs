//! Futures, for Python: what a future is, and the thread environment's part that has to be quick.
//!
//! A future goes one way: pending, running, then done, failed, cancelled or killed. Whoever moves it
//! from pending to running runs it, be it a worker or the thread that touches it. Who settles it
//! tells all that wait. What is locked here is never locked while Python code runs, and no object is
//! dropped with a lock held.

mod environment;
mod place;
mod run;
mod runner;
mod start;
mod wait;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use deconvoy_pool::{Parker, Ticket};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, intern};

pub use environment::ThreadPool;
pub use place::set_environments;
pub use wait::{touch, wait_for};

use place::Place;
use runner::Runner;
use start::{check_interpreter, start};

const UNWATCHED: u8 = 0;
const WATCHED: u8 = 1;
const SETTLED: u8 = 2;

const PENDING: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
const FAILED: u8 = 3;
const CANCELLED: u8 = 4;
const KILLED: u8 = 5;

/// What `FINISH` counts: the order in which futures finish, of the whole process.
static FINISH: AtomicU64 = AtomicU64::new(1);

/// What is locked stays whole: nothing panics with a lock held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What a future is to run.
#[derive(Debug)]
struct Body {
    /// The function, and its arguments.
    call: Py<PyTuple>,
    keywords: Option<Py<PyDict>>,
    /// The context variables as they were when it was made.
    context: Py<PyAny>,
}

/// What came of it.
#[derive(Debug)]
enum Outcome {
    Value(Py<PyAny>),
    Error { error: Py<PyAny>, traceback: Option<Py<PyAny>> },
}

#[derive(Debug, Default)]
struct Inner {
    body: Option<Body>,
    /// Where it is to run, and has run.
    place: Option<Place>,
    ticket: Option<Ticket>,
    outcome: Option<Outcome>,
    runner: Option<Arc<Runner>>,
    waiters: Vec<Arc<Parker>>,
    callbacks: Vec<Py<PyAny>>,
    /// Its place among those that have finished and that nobody has asked for.
    finished: Option<u64>,
    /// Its number in the order of finishing; 0 before.
    order: u64,
}

/// A future, without what `concurrent.futures` wants of one beside it: `deconvoy.futures.future`.
#[pyclass(subclass, frozen, weakref, module = "deconvoy._native")]
#[derive(Debug)]
pub struct Future {
    state: AtomicU8,
    /// Whether somebody waits for it by the means of `concurrent.futures`: `UNWATCHED`, `WATCHED`, or
    /// `SETTLED`, when it is too late to watch.
    watched: AtomicU8,
    inner: Mutex<Inner>,
}

impl Future {
    fn state(&self) -> u8 {
        // Acquire: what was stored before the state is seen; the partner is `move_to`.
        self.state.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.state() >= DONE
    }

    /// The environment that it belongs to, unless that is one of threads.
    fn other(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &lock(&self.inner).place {
            Some(Place::Other(other)) => Some(other.clone_ref(py)),
            _ => None,
        }
    }

    /// Has an environment whose futures end without its knowing look what there is.
    fn look(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_over()
            && let Some(other) = self.other(py)
        {
            other.call_method1(py, intern!(py, "_look"), (0,))?;
        }
        Ok(())
    }

    /// With the lock held.
    fn move_to(&self, state: u8) {
        self.state.store(state, Ordering::Release);
    }
}

#[pymethods]
impl Future {
    #[new]
    #[pyo3(signature = (*_call, **_keywords))]
    fn new(_call: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Future {
        Future {
            state: AtomicU8::new(PENDING),
            watched: AtomicU8::new(UNWATCHED),
            inner: Mutex::default(),
        }
    }

    #[pyo3(signature = (*call, **keywords))]
    fn __init__(
        slf: &Bound<'_, Future>,
        call: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        start(slf, place::current(slf.py())?, call, keywords)
    }

    /// As the constructor, in that environment.
    #[pyo3(signature = (environment, /, *call, **keywords))]
    fn _start_in(
        slf: &Bound<'_, Future>,
        environment: &Bound<'_, PyAny>,
        call: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        start(slf, Place::of(environment), call, keywords)
    }

    /// The result, or the error raised; waits for it, at most `timeout` seconds, and runs it here and
    /// now if nobody has begun to and there is no timeout.
    ///
    /// Raises TimeoutError, CancelledError, FutureKilled, or what the function raised.
    #[pyo3(signature = (timeout = None))]
    fn result(slf: &Bound<'_, Future>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        touch(slf, timeout)
    }

    /// What the function raised, or None; waits for it, at most `timeout` seconds.
    ///
    /// Raises TimeoutError, CancelledError.
    #[pyo3(signature = (timeout = None))]
    fn exception(slf: &Bound<'_, Future>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        wait::exception(slf, timeout)
    }

    /// Whether it is over, in whatever way.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py)?;
        Ok(self.is_over())
    }

    /// The same, without looking whether it has ended since somebody looked.
    fn _done_already(&self) -> bool {
        self.is_over()
    }

    /// Whether something runs it at this moment.
    fn running(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py)?;
        Ok(self.state() == RUNNING)
    }

    fn cancelled(&self) -> bool {
        self.state() == CANCELLED
    }

    /// Whether it was killed.
    fn killed(&self) -> bool {
        self.state() == KILLED
    }

    /// Has it never run, if it has not begun; whether it is cancelled.
    fn cancel(slf: &Bound<'_, Future>) -> PyResult<bool> {
        let me = slf.get();
        if me.state() == CANCELLED {
            return Ok(true);
        }
        if !me.is_over()
            && let Some(other) = me.other(slf.py())
        {
            // It may have begun since somebody looked.
            let holds = other.call_method1(slf.py(), intern!(slf.py(), "_holds_back"), (slf,))?;
            if !holds.is_truthy(slf.py())? {
                return Ok(me.state() == CANCELLED);
            }
        }
        let withdrawn = run::withdraw(slf, CANCELLED)?;
        Ok(withdrawn || me.state() == CANCELLED)
    }

    /// Calls `function(self)` when it is over, in whatever thread ends it; now, if it is.
    fn add_done_callback(slf: &Bound<'_, Future>, function: Py<PyAny>) -> PyResult<()> {
        let me = slf.get();
        {
            let mut inner = lock(&me.inner);
            if !me.is_over() {
                inner.callbacks.push(function);
                drop(inner);
                if let Some(other) = me.other(slf.py()) {
                    other.call_method1(slf.py(), intern!(slf.py(), "_watched"), (slf,))?;
                }
                return Ok(());
            }
        }
        run::call_back(slf, &function);
        Ok(())
    }

    /// `pending`, `running`, `done`, `failed`, `cancelled` or `killed`.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.look(py)?;
        Ok(self._status())
    }

    /// The same, without looking whether it has ended since somebody looked.
    #[getter]
    fn _status(&self) -> &'static str {
        match self.state() {
            PENDING => "pending",
            RUNNING => "running",
            DONE => "done",
            FAILED => "failed",
            CANCELLED => "cancelled",
            _ => "killed",
        }
    }

    /// The environment that it belongs to.
    #[getter]
    fn environment(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        lock(&self.inner).place.as_ref().map(|place| place.object(py))
    }

    /// Its place in the order in which futures of this process finish; 0: it has not.
    #[getter]
    fn _order(&self) -> u64 {
        lock(&self.inner).order
    }

    /// Somebody waits for it by the means of `concurrent.futures`: whether `_tell` will be called; if not,
    /// it is over.
    fn _watch(&self) -> bool {
        let order = Ordering::SeqCst;
        let before = self.watched.compare_exchange(UNWATCHED, WATCHED, order, order);
        before != Err(SETTLED)
    }

    /// It runs, in another process.
    fn _begin(&self) {
        let _inner = lock(&self.inner);
        if self.state() == PENDING {
            self.move_to(RUNNING);
        }
    }

    /// Ends it with an error, and tells nobody: in a forked child, where those are not who wait for it.
    fn _lose(slf: &Bound<'_, Future>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let me = slf.get();
        let outcome = Outcome::from_error(error)?;
        let gone = {
            let mut inner = lock(&me.inner);
            if me.is_over() {
                return Ok(());
            }
            inner.runner = None;
            me.watched.store(SETTLED, Ordering::SeqCst);
            let callbacks = std::mem::take(&mut inner.callbacks);
            let waiters = std::mem::take(&mut inner.waiters);
            let before = inner.outcome.replace(outcome);
            me.move_to(FAILED);
            (callbacks, waiters, before)
        };
        drop(gone);
        Ok(())
    }

    /// The function with its arguments, the keywords, the context, for another process to run; None: they
    /// were taken.
    fn _take_body<'py>(&self, py: Python<'py>) -> Option<(Py<PyTuple>, Py<PyAny>, Py<PyAny>)> {
        let body = {
            let mut inner = lock(&self.inner);
            if self.state() != PENDING {
                return None;
            }
            inner.body.take()?
        };
        let keywords = body.keywords.unwrap_or_else(|| PyDict::new(py).unbind());
        Some((body.call, keywords.into_any(), body.context))
    }

    /// Ends it with a value; whether it was not over.
    fn _settle(slf: &Bound<'_, Future>, value: Py<PyAny>) -> PyResult<bool> {
        run::settle_outside(slf, DONE, Some(Outcome::Value(value)))
    }

    /// Ends it with an error; whether it was not over.
    fn _fail(slf: &Bound<'_, Future>, error: &Bound<'_, PyAny>) -> PyResult<bool> {
        let outcome = Outcome::from_error(error)?;
        run::settle_outside(slf, FAILED, Some(outcome))
    }

    /// Ends it as killed, and tells the thread that runs it; whether it was not over.
    fn _kill(slf: &Bound<'_, Future>) -> PyResult<bool> {
        run::kill(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds the lock is at work on it: it is alive.
        let Ok(inner) = self.inner.try_lock() else { return Ok(()) };
        if let Some(body) = &inner.body {
            visit.call(&body.call)?;
            visit.call(&body.keywords)?;
            visit.call(&body.context)?;
        }
        match &inner.place {
            Some(Place::Threads(pool)) => visit.call(pool)?,
            Some(Place::Other(other)) => visit.call(other)?,
            None => {}
        }
        match &inner.outcome {
            Some(Outcome::Value(value)) => visit.call(value)?,
            Some(Outcome::Error { error, traceback }) => {
                visit.call(error)?;
                visit.call(traceback)?;
            }
            None => {}
        }
        inner.callbacks.iter().try_for_each(|callback| visit.call(callback))
    }

    fn __clear__(&self) {
        let cleared = {
            let mut inner = lock(&self.inner);
            (inner.body.take(), inner.outcome.take(), std::mem::take(&mut inner.callbacks))
        };
        drop(cleared);
    }
}

impl Outcome {
    fn from_raised(py: Python<'_>, error: &PyErr) -> Outcome {
        let traceback = error.traceback(py).map(|traceback| traceback.into_any().unbind());
        Outcome::Error { error: error.value(py).clone().into_any().unbind(), traceback }
    }

    fn from_error(error: &Bound<'_, PyAny>) -> PyResult<Outcome> {
        let traceback = error.getattr(intern!(error.py(), "__traceback__"))?;
        let traceback = (!traceback.is_none()).then(|| traceback.unbind());
        Ok(Outcome::Error { error: error.clone().unbind(), traceback })
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    module.add_class::<Future>()?;
    module.add_class::<ThreadPool>()?;
    module.add_function(wrap_pyfunction!(touch, module)?)?;
    module.add_function(wrap_pyfunction!(wait::blocks, module)?)?;
    module.add_function(wrap_pyfunction!(wait::unblocks, module)?)?;
    module.add_function(wrap_pyfunction!(wait_for, module)?)?;
    module.add_function(wrap_pyfunction!(set_environments, module)?)?;
    Ok(())
}
