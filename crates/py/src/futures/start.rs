//! How a future begins, and where.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::place::Place;
use super::{Body, Future, lock};

/// A context with the present values of all context variables.
fn copy_context(py: Python<'_>) -> PyResult<Py<PyAny>> {
    static COPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let copy = COPY.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("contextvars")?.getattr("copy_context")?.unbind())
    })?;
    copy.call0(py)
}

/// Fills a new future, and has `place` run it.
pub fn start(
    future: &Bound<'_, Future>,
    place: Place,
    call: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = future.py();
    match call.get_borrowed_item(0) {
        Ok(function) if function.is_callable() => {}
        Ok(function) => {
            let kind = function.get_type().name()?;
            let why = format!("a future is made of a function and its arguments, not of {kind}");
            return Err(PyTypeError::new_err(why));
        }
        Err(_) => return Err(PyTypeError::new_err("a future is made of a function")),
    }
    let context = copy_context(py)?;
    let me = future.get();
    {
        let mut inner = lock(&me.inner);
        if inner.place.is_some() {
            return Err(PyRuntimeError::new_err("this future has begun already"));
        }
        inner.body = Some(Body {
            call: call.clone().unbind(),
            keywords: keywords.map(|keywords| keywords.clone().unbind()),
            context,
        });
        inner.place = Some(place.clone_ref(py));
        if let Place::Threads(pool) = &place {
            // With the future locked: whoever takes it from the queue waits until it has its ticket.
            inner.ticket = Some(pool.get().push(future));
        }
    }
    place.start(future)
}

/// The first interpreter of this process that has imported the module, by the address of its `sys`.
static INTERPRETER: AtomicUsize = AtomicUsize::new(0);

/// Raises ImportError in any but the first interpreter of a process: what is kept for the process is of
/// Python's objects, and those are of one.
pub fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    let mine = py.import("sys")?.as_ptr().addr();
    match INTERPRETER.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(first) if first == mine => Ok(()),
        Err(_) => {
            let why =
                "deconvoy works in one interpreter of a process, not in subinterpreters beside it";
            Err(PyImportError::new_err(why))
        }
    }
}
