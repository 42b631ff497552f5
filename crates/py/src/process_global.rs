//! A value for the whole process, for Python: each thread reads a copy of its own.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};

use deconvoy_pool::{Cached, ProcessGlobal as Global};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, gc::PyVisit, intern};

/// What there is: for each slot the number of the value that has it, and how many there have been.
static SLOTS: Mutex<Slots> = Mutex::new(Slots { numbers: Vec::new(), given: 0 });

struct Slots {
    /// `FREE`, or the number.
    numbers: Vec<u64>,
    given: u64,
}

const FREE: u64 = 0;

impl Slots {
    fn held() -> MutexGuard<'static, Slots> {
        SLOTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A slot, and a number that no value has had.
    fn take(&mut self) -> (usize, u64) {
        self.given += 1;
        let free = self.numbers.iter().position(|number| *number == FREE);
        let slot = free.unwrap_or(self.numbers.len());
        if free.is_none() {
            self.numbers.push(FREE);
        }
        self.numbers[slot] = self.given;
        (slot, self.given)
    }
}

/// A copy, and the number of the value that it is of.
type Copied = (u64, Cached<Py<PyAny>>);

/// A thread's copies, by slot.
#[derive(Default)]
struct Copies(Vec<Option<Copied>>);

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
    slot: usize,
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
        let (slot, number) = Slots::held().take();
        Ok(ProcessGlobal { slot, number, value, copy })
    }

    /// On a free-threaded build nobody counts who uses it.
    #[pyo3(signature = (value, copy = None))]
    fn __init__(
        slf: &Bound<'_, ProcessGlobal>,
        value: &Bound<'_, PyAny>,
        copy: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        // Those are for `__new__`.
        let _ = (value, copy);
        slf.py().import("deconvoy.futures.deferred")?.call_method1("defer", (slf,))?;
        Ok(())
    }

    /// The value, as this thread has it: the last that was set before, or a later one.
    fn get(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let known = MINE.with_borrow(|mine| {
            let (number, cached) = mine.0.get(self.slot)?.as_ref()?;
            let value = self.value.fresh(cached).filter(|_| *number == self.number)?;
            Some(value.clone_ref(py))
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let (stored, epoch) = self.value.snapshot(|stored| stored.clone_ref(py));
        let value = self.copied(py, &stored)?;
        let cached = Cached::at(epoch, value.clone_ref(py));
        let old = MINE.with_borrow_mut(|mine| {
            let numbers = Slots::held().numbers.clone();
            mine.0.resize_with(numbers.len(), || None);
            // Copies of what is no more are let go of here.
            let is_gone = |(slot, copied): &(usize, &mut Option<Copied>)| {
                copied.as_ref().is_some_and(|(number, _)| *number != numbers[*slot])
            };
            let gone = mine.0.iter_mut().enumerate().filter(is_gone);
            let mut old: Vec<_> = gone.map(|(_, copied)| copied.take()).collect();
            old.push(mine.0[self.slot].replace((self.number, cached)));
            old
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
        Slots::held().numbers[self.slot] = FREE;
    }
}
