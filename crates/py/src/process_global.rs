//! A value for the whole process, for Python: each thread reads a copy of its own.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use deconvoy_pool::{Cached, ProcessGlobal as Global};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, gc::PyVisit, intern};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Those that there are.
static ALIVE: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// A thread's copies, by number.
#[derive(Default)]
struct Copies(HashMap<u64, Cached<Py<PyAny>>>);

impl Drop for Copies {
    /// Not without the GIL: what is let go of so is put down behind a lock of PyO3's, which a forked
    /// child may find taken for ever.
    fn drop(&mut self) {
        let copies = std::mem::take(&mut self.0);
        if copies.is_empty() {
            return;
        }
        let mut left = Some(copies);
        Python::try_attach(|_| drop(left.take()));
        // The interpreter is ending: there is nobody to give them back to.
        std::mem::forget(left);
    }
}

thread_local! {
    static MINE: RefCell<Copies> = RefCell::default();
}

/// One value for the process, read far more often than written: `get` takes no lock while nobody
/// writes, and what it returns no other thread refers to. (Tcl's ProcessGlobalValue.)
///
/// A copy is made for each thread that reads, when it first does after a writing: by pickling, or by
/// `copy(value)`. Raises what pickling raises, when the value is set.
#[pyclass(frozen, module = "deconvoy._native")]
pub struct ProcessGlobal {
    number: u64,
    /// As it was given, or pickled.
    value: Global<Py<PyAny>>,
    copy: Option<Py<PyAny>>,
}

fn pickle<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyModule>> {
    static PICKLE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = PICKLE.get_or_try_init(py, || py.import("pickle").map(Bound::unbind))?;
    Ok(module.bind(py))
}

fn alive<R>(act: impl FnOnce(&mut HashSet<u64>) -> R) -> R {
    let mut held = ALIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    act(held.get_or_insert_default())
}

impl ProcessGlobal {
    fn stored(value: &Bound<'_, PyAny>, copy: Option<&Py<PyAny>>) -> PyResult<Py<PyAny>> {
        if copy.is_some() {
            return Ok(value.clone().unbind());
        }
        let py = value.py();
        Ok(pickle(py)?.call_method1(intern!(py, "dumps"), (value, 5))?.unbind())
    }

    /// Python code runs here, with nothing locked.
    fn copied(&self, py: Python<'_>, stored: &Py<PyAny>) -> PyResult<Py<PyAny>> {
        match &self.copy {
            Some(copy) => copy.call1(py, (stored,)),
            None => {
                let bytes = stored.bind(py).cast::<PyBytes>()?;
                Ok(pickle(py)?.call_method1(intern!(py, "loads"), (bytes,))?.unbind())
            }
        }
    }
}

#[pymethods]
impl ProcessGlobal {
    #[new]
    #[pyo3(signature = (value, copy = None))]
    fn new(value: &Bound<'_, PyAny>, copy: Option<Py<PyAny>>) -> PyResult<ProcessGlobal> {
        let value = Global::new(ProcessGlobal::stored(value, copy.as_ref())?);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        alive(|them| them.insert(number));
        Ok(ProcessGlobal { number, value, copy })
    }

    /// The value, as this thread has it: the last that was set before, or a later one.
    fn get(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let known = MINE.with_borrow(|mine| {
            let cached = mine.0.get(&self.number)?;
            self.value.fresh(cached).map(|value| value.clone_ref(py))
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let (stored, epoch) = self.value.snapshot(|stored| stored.clone_ref(py));
        let value = self.copied(py, &stored)?;
        let cached = Cached::at(epoch, value.clone_ref(py));
        let old = MINE.with_borrow_mut(|mine| {
            let old = mine.0.insert(self.number, cached);
            // Copies of what is no more are let go of here.
            let gone: Vec<_> = alive(|them| {
                mine.0.keys().copied().filter(|number| !them.contains(number)).collect()
            });
            (old, gone.iter().filter_map(|number| mine.0.remove(number)).collect::<Vec<_>>())
        });
        drop(old);
        Ok(value)
    }

    /// Stores a value, which all threads see from now on.
    fn set(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let stored = ProcessGlobal::stored(value, self.copy.as_ref())?;
        let old = self.value.set(stored);
        drop(old);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.copy)
    }
}

impl Drop for ProcessGlobal {
    fn drop(&mut self) {
        alive(|them| them.remove(&self.number));
    }
}
