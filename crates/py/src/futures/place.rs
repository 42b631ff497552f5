//! Where futures run, and which environment is the present one.

use std::sync::Mutex;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use super::environment::ThreadPool;
use super::{Future, lock};

/// Where a future runs.
#[derive(Debug)]
pub enum Place {
    Threads(Py<ThreadPool>),
    /// An environment that does it in Python.
    Other(Py<PyAny>),
}

impl Place {
    pub fn of(environment: &Bound<'_, PyAny>) -> Place {
        match environment.cast::<ThreadPool>() {
            Ok(pool) => Place::Threads(pool.clone().unbind()),
            Err(_) => Place::Other(environment.clone().unbind()),
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Place {
        match self {
            Place::Threads(pool) => Place::Threads(pool.clone_ref(py)),
            Place::Other(other) => Place::Other(other.clone_ref(py)),
        }
    }

    pub fn object(&self, py: Python<'_>) -> Py<PyAny> {
        match self {
            Place::Threads(pool) => pool.clone_ref(py).into_any(),
            Place::Other(other) => other.clone_ref(py),
        }
    }

    pub fn start(&self, future: &Bound<'_, Future>) -> PyResult<()> {
        let py = future.py();
        match self {
            Place::Threads(pool) => ThreadPool::meets_need(pool.bind(py)),
            Place::Other(other) => {
                other.call_method1(py, intern!(py, "_start"), (future,))?;
                Ok(())
            }
        }
    }
}

/// The context variable that has the present environment where there are several, the default, and how
/// many others there are. While there are none, the variable need not be looked at.
#[derive(Debug)]
struct Environments {
    variable: Py<PyAny>,
    default: Place,
    others: usize,
}

/// Not a copy for each thread: what a thread has of Python's it would let go of at its end, without the
/// GIL, by way of a lock of PyO3's that a forked child may then find taken for ever.
static ENVIRONMENTS: Mutex<Option<Environments>> = Mutex::new(None);

/// Says which environment is the default, in which context variable another one may be, and how many
/// others there are.
#[pyfunction]
pub fn set_environments(variable: Py<PyAny>, default: &Bound<'_, PyAny>, others: usize) {
    let default = Place::of(default);
    let before = lock(&ENVIRONMENTS).replace(Environments { variable, default, others });
    drop(before);
}

/// The present environment.
pub fn current(py: Python<'_>) -> PyResult<Place> {
    let (variable, default) = match lock(&ENVIRONMENTS).as_ref() {
        None => return Err(PyRuntimeError::new_err("no environment: import deconvoy.futures")),
        Some(known) if known.others == 0 => return Ok(known.default.clone_ref(py)),
        Some(known) => (known.variable.clone_ref(py), known.default.object(py)),
    };
    let found = variable.call_method1(py, intern!(py, "get"), (default,))?;
    Ok(Place::of(found.bind(py)))
}
