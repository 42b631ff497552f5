//! The lab, for Python.

use std::path::PathBuf;
use std::sync::Arc;

use deconvoy_lab::messaging::Server;
use deconvoy_lab::{AnyGil, Choice, calibrate, countdown, workload};
use deconvoy_mix::Mix;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

fn parse(lock: &str) -> PyResult<Choice<'_>> {
    Choice::parse(lock).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn make(lock: &str, threads: u32, trace: Option<PathBuf>) -> PyResult<AnyGil> {
    AnyGil::new(parse(lock)?, threads as usize, trace.as_deref())
        .map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Raises ValueError when `lock` is neither a policy nor a rival of the lab's.
#[pyfunction]
pub fn check_lab(lock: &str) -> PyResult<()> {
    parse(lock).map(|_| ())
}

/// Counts `work` down in the lab: in the calling thread (`workers` 0), or split over threads. Returns
/// the seconds that it took, and how often the lock went from one thread to another (None: a rival
/// does not say). Raises ValueError for an unknown lock, OSError when the trace cannot be made.
#[pyfunction]
#[pyo3(signature = (lock, workers, work, trace = None))]
pub fn lab_countdown(
    py: Python<'_>,
    lock: &str,
    workers: u32,
    work: i64,
    trace: Option<PathBuf>,
) -> PyResult<(f64, Option<u64>)> {
    let gil = make(lock, workers.max(1), trace)?;
    let ran = py.detach(|| countdown::run(&gil, workers, work));
    Ok((ran.elapsed_s, ran.gil_switches))
}

/// Runs the workload `mix` (TOML) in the lab until its end. Returns the seconds that it took; its threads
/// last as long as the process. Raises ValueError for what makes no sense, OSError when there are no
/// threads or sockets or the trace cannot be made.
#[pyfunction]
#[pyo3(signature = (lock, mix, seed, trace = None))]
pub fn lab_mix(
    py: Python<'_>,
    lock: &str,
    mix: &str,
    seed: u64,
    trace: Option<PathBuf>,
) -> PyResult<f64> {
    let mix = Mix::parse(mix).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let gil: &'static AnyGil = Box::leak(Box::new(make(lock, mix.count(), trace)?));
    let mix: &'static Mix = Box::leak(Box::new(mix));
    let ran = py.detach(|| workload::run(gil, mix, seed))?;
    Ok(ran.as_secs_f64())
}

/// What the operations of this machine take: the name of each cost and its value in nanoseconds, or its
/// quantiles. `said` is called with what is measured next. Raises OSError when there are no sockets.
#[pyfunction]
pub fn calibrate_machine(
    py: Python<'_>,
    said: Py<PyAny>,
) -> PyResult<Vec<(&'static str, Vec<f64>)>> {
    let mut failed = None;
    let measured = py.detach(|| {
        calibrate::measure(|what| {
            let told = Python::attach(|py| said.call1(py, (what,)).map(|_| ()));
            failed = failed.take().or(told.err());
        })
    })?;
    failed.map_or(Ok(measured), Err)
}

/// A messaging server of the lab, which runs until the process ends. Raises ValueError for an unknown
/// lock, OSError when it cannot listen or the trace cannot be made.
#[pyclass(frozen)]
pub struct LabServer(Server);

#[pymethods]
impl LabServer {
    #[new]
    #[pyo3(signature = (lock, workers, trace = None))]
    fn new(lock: &str, workers: u32, trace: Option<PathBuf>) -> PyResult<LabServer> {
        let gil = Arc::new(make(lock, workers + 1, trace)?);
        Ok(LabServer(Server::start(gil, workers)?))
    }

    /// Where it listens, on 127.0.0.1.
    #[getter]
    fn port(&self) -> u16 {
        self.0.port()
    }

    /// How far each CPU-bound thread has counted.
    fn counts(&self) -> Vec<u64> {
        self.0.counts()
    }
}
