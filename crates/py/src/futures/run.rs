//! How a future is run, settled, withdrawn and killed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use deconvoy_pool::Parker;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use super::environment::ThreadPool;
use super::place::Place;
use super::runner::{Deeper, Runner};
use super::{
    Body, CANCELLED, DONE, FAILED, FINISH, Future, KILLED, Outcome, PENDING, RUNNING, SETTLED,
    WATCHED, lock,
};

/// A future that the present thread has taken to run.
pub struct Claimed<'py> {
    body: Body,
    pool: Bound<'py, ThreadPool>,
}

/// Takes a pending future of threads for the present thread to run, out of the queue too.
pub fn claim<'py>(future: &Bound<'py, Future>, runner: &Arc<Runner>) -> Option<Claimed<'py>> {
    let me = future.get();
    let (body, pool, ticket) = {
        let mut inner = lock(&me.inner);
        if me.state() != PENDING {
            return None;
        }
        let Some(Place::Threads(pool)) = &inner.place else { return None };
        let pool = pool.bind(future.py()).clone();
        let body = inner.body.take()?;
        me.move_to(RUNNING);
        inner.runner = Some(runner.clone());
        (body, pool, inner.ticket.take())
    };
    if let Some(ticket) = ticket {
        let queued = pool.get().pool.take(ticket, |one| one.is(future));
        drop(queued);
    }
    Some(Claimed { body, pool })
}

/// The pool of a thread future.
pub fn pool_of<'py>(future: &Bound<'py, Future>) -> Option<Bound<'py, ThreadPool>> {
    match &lock(&future.get().inner).place {
        Some(Place::Threads(pool)) => Some(pool.bind(future.py()).clone()),
        _ => None,
    }
}

/// Runs what a worker has taken from the queue, unless somebody was quicker; who is to be told.
pub fn run_as_worker(
    future: &Bound<'_, Future>,
    runner: &Arc<Runner>,
) -> PyResult<Vec<Arc<Parker>>> {
    // It is in the queue no more.
    lock(&future.get().inner).ticket = None;
    match claim(future, runner) {
        Some(claimed) => Ok(run(future, claimed, runner, true)?.waiters),
        None => Ok(Vec::new()),
    }
}

/// A future that was run.
pub struct Ran {
    /// Who is to be told.
    pub waiters: Vec<Arc<Parker>>,
    /// What it has come to; `None`: an error, or it was killed meanwhile.
    pub value: Option<Py<PyAny>>,
}

/// Runs what the present thread has claimed, and settles it.
pub fn run(
    future: &Bound<'_, Future>,
    claimed: Claimed<'_>,
    runner: &Arc<Runner>,
    is_worker: bool,
) -> PyResult<Ran> {
    let py = future.py();
    let Claimed { body, pool } = claimed;
    let pool = pool.get();
    lock(&pool.running).push(future.clone().unbind());
    let ran = {
        let _deeper = Deeper::enter(runner, future);
        call_start_hooks(future, pool).and_then(|()| call(py, &body))
    };
    drop(body);
    let (state, outcome, value) = match ran {
        Ok(value) => (DONE, Outcome::Value(value.clone_ref(py)), Some(value)),
        Err(error) => (FAILED, Outcome::from_raised(py, &error), None),
    };
    // Before it is over: whoever sees it over may look at what has finished, and at what there is to run;
    // and never is it in neither.
    if is_worker {
        pool.finishes(future);
    }
    remove_running(future, pool);
    let ran = match settle(future, state, Some(outcome)) {
        Some(waiters) => Ran { waiters, value },
        None => {
            pool.forget(future);
            comes_back(future, pool, runner)?;
            Ran { waiters: Vec::new(), value: None }
        }
    };
    pool.tell_any();
    for hook in pool.hooks(py, false).unwrap_or_default() {
        call_back(future, &hook);
    }
    Ok(ran)
}

fn call(py: Python<'_>, body: &Body) -> PyResult<Py<PyAny>> {
    // Not bound to its context, which would be one more object each time.
    static RUN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let run = RUN.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("contextvars")?.getattr("Context")?.getattr("run")?.unbind())
    })?;
    let call = body.call.bind(py);
    let mut context = Some(body.context.bind(py).clone());
    let mut given = call.iter();
    let arguments = (0..given.len() + 1).map(|_| context.take().or_else(|| given.next()));
    let arguments = PyTuple::new(py, arguments)?;
    let keywords = body.keywords.as_ref().map(|keywords| keywords.bind(py));
    Ok(run.bind(py).call(arguments, keywords)?.unbind())
}

fn call_start_hooks(future: &Bound<'_, Future>, pool: &ThreadPool) -> PyResult<()> {
    for hook in pool.hooks(future.py(), true).unwrap_or_default() {
        hook.call1(future.py(), (future,))?;
    }
    Ok(())
}

fn remove_running(future: &Bound<'_, Future>, pool: &ThreadPool) {
    let removed = {
        let mut running = lock(&pool.running);
        let place = running.iter().rposition(|one| one.is(future));
        place.map(|place| running.swap_remove(place))
    };
    drop(removed);
}

/// The body of a killed future has come back: what its thread was told does not reach what it does
/// next.
fn comes_back(future: &Bound<'_, Future>, pool: &ThreadPool, runner: &Arc<Runner>) -> PyResult<()> {
    let py = future.py();
    if future.get().state() != KILLED {
        // It is over in this process, which was forked within it.
        return Ok(());
    }
    runner.forgets(py)?;
    runner.is_back(py);
    lock(&future.get().inner).runner = None;
    // Not below zero: it may have been killed before a fork, in a process that is not this one.
    let one_less = |stuck: usize| Some(stuck.saturating_sub(1));
    let _ = pool.stuck.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    Ok(())
}

/// Ends a future that runs: who is to be told; `None`: it was over, since somebody has killed it.
fn settle(
    future: &Bound<'_, Future>,
    state: u8,
    outcome: Option<Outcome>,
) -> Option<Vec<Arc<Parker>>> {
    let me = future.get();
    let (waiters, callbacks) = {
        let mut inner = lock(&me.inner);
        if me.is_over() {
            drop(inner);
            drop(outcome);
            return None;
        }
        inner.outcome = outcome;
        inner.order = FINISH.fetch_add(1, Ordering::Relaxed);
        if state != KILLED {
            inner.runner = None;
        }
        me.state.store(state, Ordering::SeqCst);
        (std::mem::take(&mut inner.waiters), std::mem::take(&mut inner.callbacks))
    };
    let is_watched = me.watched.swap(SETTLED, Ordering::SeqCst) == WATCHED;
    if !is_watched && callbacks.is_empty() {
        return Some(waiters);
    }
    waiters.iter().for_each(|waiter| waiter.tell());
    if is_watched && let Err(error) = future.call_method0(intern!(future.py(), "_tell")) {
        error.write_unraisable(future.py(), Some(future.as_any()));
    }
    for callback in &callbacks {
        call_back(future, callback);
    }
    Some(Vec::new())
}

/// Ends a future that no thread of ours runs; whether it was not over.
pub fn settle_outside(
    future: &Bound<'_, Future>,
    state: u8,
    outcome: Option<Outcome>,
) -> PyResult<bool> {
    let Some(waiters) = settle(future, state, outcome) else { return Ok(false) };
    waiters.iter().for_each(|waiter| waiter.tell());
    Ok(true)
}

/// Calls `function(future)`; what it raises is told as what nobody can catch is.
pub fn call_back(future: &Bound<'_, Future>, function: &Py<PyAny>) {
    if let Err(error) = function.call1(future.py(), (future,)) {
        error.write_unraisable(future.py(), Some(function.bind(future.py())));
    }
}

/// Ends a future that nobody has begun, as cancelled or killed; whether it was one.
pub fn withdraw(future: &Bound<'_, Future>, state: u8) -> PyResult<bool> {
    let me = future.get();
    let (body, ticket, other) = {
        let mut inner = lock(&me.inner);
        if me.state() != PENDING {
            return Ok(false);
        }
        // Nobody begins it from now on.
        me.move_to(RUNNING);
        let other = match &inner.place {
            Some(Place::Other(other)) => Some(other.clone_ref(future.py())),
            _ => None,
        };
        (inner.body.take(), inner.ticket.take(), other)
    };
    drop(body);
    if let (Some(ticket), Some(pool)) = (ticket, pool_of(future)) {
        let queued = pool.get().pool.take(ticket, |one| one.is(future));
        drop(queued);
    }
    debug_assert!(matches!(state, CANCELLED | KILLED));
    settle_outside(future, state, None)?;
    match (pool_of(future), other) {
        (Some(pool), _) => pool.get().tell_any(),
        (None, Some(other)) => {
            other.call_method1(future.py(), intern!(future.py(), "_withdrawn"), (future,))?;
        }
        _ => {}
    }
    Ok(true)
}

/// Ends a future as killed, and tells the thread that runs it; whether it was not over.
pub fn kill(future: &Bound<'_, Future>) -> PyResult<bool> {
    if withdraw(future, KILLED)? {
        return Ok(true);
    }
    let me = future.get();
    let runner = lock(&me.inner).runner.clone();
    let Some(runner) = runner else {
        return settle_outside(future, KILLED, None);
    };
    // Counted before it is over: its thread waits to be told. After this no Python code runs before it
    // is, which a signal could interrupt.
    if let Err(error) = runner.is_lost(future.py()) {
        // Another worker could not be made, or a signal came meanwhile: as if nobody had tried.
        runner.told();
        runner.is_back(future.py());
        return Err(error);
    }
    if !settle_outside(future, KILLED, None)? {
        runner.told();
        runner.is_back(future.py());
        return Ok(false);
    }
    // If it waits in here, it need not wait on.
    runner.parker.tell();
    if let Some(pool) = pool_of(future) {
        pool.get().stuck.fetch_add(1, Ordering::SeqCst);
        remove_running(future, pool.get());
        pool.get().tell_any();
    }
    // Where it is in a body within this one, that is not to hear of it: it looks when it is back.
    let told = if runner.is_in(future) { runner.tell_killed(future.py()) } else { Ok(()) };
    runner.told();
    told.map(|()| true)
}
