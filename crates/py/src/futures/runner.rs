//! A thread that runs futures: a worker, or one that touches what nobody has begun.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deconvoy_pool::{Parker, Worker};
use pyo3::prelude::*;

use super::environment::{ThreadPool, told_class};
use super::{Future, KILLED, lock};

/// So deep may bodies run in one another, in one thread; what is deeper is left to another thread.
const DEEPEST: usize = 50;

/// What others know of it.
#[derive(Debug)]
pub struct Runner {
    /// `threading.get_ident()`.
    pub ident: u64,
    pub parker: Arc<Parker>,
    /// What it waits for.
    pub waits_for: Mutex<Option<Py<Future>>>,
    /// The futures whose bodies it runs, each within the one before.
    stack: Mutex<Vec<Py<Future>>>,
    /// It waits for any of its environment's.
    pub waits_for_any: AtomicBool,
    /// Killers that have not told it yet.
    owed: AtomicU32,
    slot: Mutex<Slot>,
}

/// Whether its pool counts it as at work.
#[derive(Debug, Default)]
struct Slot {
    /// Only workers have a place in a pool.
    pool: Option<Py<ThreadPool>>,
    counted: bool,
    /// Bodies of it that were killed and have not come back.
    lost: u32,
}

thread_local! {
    static ME: RefCell<Option<Arc<Runner>>> = const { RefCell::new(None) };
    static WORKER: RefCell<Option<(usize, Worker)>> = const { RefCell::new(None) };
}

impl Runner {
    /// The present thread.
    pub fn here(py: Python<'_>) -> PyResult<Arc<Runner>> {
        if let Some(runner) = ME.with_borrow(Clone::clone) {
            return Ok(runner);
        }
        let ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
        let runner = Arc::new(Runner {
            ident,
            parker: Arc::default(),
            waits_for: Mutex::default(),
            stack: Mutex::default(),
            waits_for_any: AtomicBool::new(false),
            owed: AtomicU32::new(0),
            slot: Mutex::default(),
        });
        ME.set(Some(runner.clone()));
        Ok(runner)
    }

    /// It begins to work for this pool, which has counted it.
    pub fn joins(&self, pool: Py<ThreadPool>) {
        let mut slot = lock(&self.slot);
        slot.counted = true;
        slot.pool = Some(pool);
    }

    /// It works for no pool any more. (What it has of Python's is let go of here, with the GIL.)
    pub fn leaves(&self) {
        let pool = lock(&self.slot).pool.take();
        drop(pool);
    }

    /// It waits for other work: there is room for another one.
    pub fn blocks(&self, py: Python<'_>) -> PyResult<()> {
        self.leaves_slot(py, |_| ())
    }

    /// What it ran was killed: it is lost until it comes back.
    pub fn is_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.owed.fetch_add(1, Ordering::SeqCst);
        self.leaves_slot(py, |slot| slot.lost += 1)
    }

    fn leaves_slot(&self, py: Python<'_>, change: impl FnOnce(&mut Slot)) -> PyResult<()> {
        let pool = {
            let mut slot = lock(&self.slot);
            change(&mut slot);
            let counted = std::mem::replace(&mut slot.counted, false);
            slot.pool.as_ref().filter(|_| counted).map(|pool| pool.clone_ref(py))
        };
        match pool {
            Some(pool) => ThreadPool::makes_room(pool.bind(py)),
            None => Ok(()),
        }
    }

    /// It goes on.
    pub fn unblocks(&self, py: Python<'_>) {
        self.gets_slot(py, |_| ());
    }

    /// What was killed has come back, or was quicker than its killer.
    pub fn is_back(&self, py: Python<'_>) {
        self.gets_slot(py, |slot| slot.lost -= 1);
    }

    fn gets_slot(&self, py: Python<'_>, change: impl FnOnce(&mut Slot)) {
        let pool = {
            let mut slot = lock(&self.slot);
            change(&mut slot);
            if slot.lost > 0 || slot.counted || slot.pool.is_none() {
                return;
            }
            slot.counted = true;
            slot.pool.as_ref().map(|pool| pool.clone_ref(py))
        };
        if let Some(pool) = pool {
            pool.get().pool.unblock();
        }
    }

    /// Whether it runs the body of that future, and not another one within it.
    pub fn is_in(&self, future: &Bound<'_, Future>) -> bool {
        lock(&self.stack).last().is_some_and(|one| one.is(future))
    }

    /// Whether one more body may run within those that it runs.
    pub fn may_go_deeper(&self) -> bool {
        lock(&self.stack).len() < DEEPEST
    }

    /// Whether the innermost future that it runs was killed.
    pub fn was_killed(&self) -> bool {
        lock(&self.stack).last().is_some_and(|one| one.get().state() == KILLED)
    }

    /// Raises ThreadKilled if that is so, once: what the thread was told by other means is taken back.
    pub fn check_killed(&self, py: Python<'_>) -> PyResult<()> {
        if !self.was_killed() {
            return Ok(());
        }
        self.forgets(py)?;
        Err(PyErr::from_value(told_class(py)?.call0()?))
    }

    /// Takes back what its thread was told and has not noticed.
    pub fn forgets(&self, py: Python<'_>) -> PyResult<()> {
        while self.owed.load(Ordering::SeqCst) > 0 {
            py.detach(|| std::thread::sleep(Duration::from_micros(50)));
        }
        let kill = py.import("deconvoy.futures.kill")?;
        kill.getattr("forget")?.call1((self.ident, py.None()))?;
        Ok(())
    }

    /// Tells its thread that what it runs was killed.
    pub fn tell_killed(&self, py: Python<'_>) -> PyResult<()> {
        let kill = py.import("deconvoy.futures.kill")?;
        kill.getattr("tell")?.call1((self.ident, told_class(py)?))?;
        Ok(())
    }

    pub fn told(&self) {
        self.owed.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The present thread's place in the pool with that address; `None`: it does not work for it.
pub fn with_worker<R>(pool: usize, act: impl FnOnce(Option<&mut Worker>) -> R) -> R {
    WORKER.with_borrow_mut(|worker| {
        act(worker.as_mut().filter(|worker| worker.0 == pool).map(|worker| &mut worker.1))
    })
}

pub fn set_worker(worker: Option<(usize, Worker)>) {
    WORKER.set(worker);
}

/// In a forked child: the thread that is left works for no pool. (Who is in the middle of work keeps what
/// it has of the old one.)
pub fn forget_here() {
    set_worker(None);
    if let Some(before) = ME.take() {
        // Whoever was about to tell it something is not in this process.
        before.owed.store(0, Ordering::SeqCst);
    }
}

/// A body runs in the present thread.
pub struct Deeper<'r>(&'r Runner);

impl<'r> Deeper<'r> {
    pub fn enter(runner: &'r Runner, future: &Bound<'_, Future>) -> Deeper<'r> {
        lock(&runner.stack).push(future.clone().unbind());
        Deeper(runner)
    }
}

impl Drop for Deeper<'_> {
    fn drop(&mut self) {
        let future = lock(&self.0.stack).pop();
        drop(future);
    }
}
