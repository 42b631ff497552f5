//! The simulator, for Python.

use std::path::PathBuf;

use deconvoy_mix::Mix;
use deconvoy_policy::Spec;
use deconvoy_sim::{Costs, MAX_CORES, Outcome, Recording, World, costs, run};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Runs the workload `mix` (TOML) under `policy` in virtual time, on so many cores, with `costs` (TOML;
/// what it does not say is as by default). `trace`: a new file for the trace of it; `command`: what it says that
/// it is of. Returns the outcome
/// as JSON. Raises ValueError for what makes no sense, OSError when the trace cannot be made.
#[pyfunction]
#[pyo3(signature = (policy, cores, mix, costs, seed, trace = None, command = ""))]
#[allow(clippy::too_many_arguments)]
pub fn simulate(
    py: Python<'_>,
    policy: &str,
    cores: u32,
    mix: &str,
    costs: &str,
    seed: u64,
    trace: Option<PathBuf>,
    command: &str,
) -> PyResult<String> {
    if !(1..=MAX_CORES).contains(&cores) {
        return Err(wrong(format!("{cores} cores: there must be from 1 to {MAX_CORES}")));
    }
    let spec = Spec::parse(policy).map_err(wrong)?;
    let mix = Mix::parse(mix).map_err(wrong)?;
    let costs = Costs::parse(costs).map_err(|error| wrong(format!("costs: {error}")))?;
    let world = World { cores, costs, seed };
    py.detach(|| {
        let outcome: Outcome = match trace {
            None => run(&spec, &mix, world, ()),
            Some(path) => {
                let recording = Recording::begin(&path, policy, command, &mix, world)
                    .map_err(|error| PyOSError::new_err(error.to_string()))?;
                run(&spec, &mix, world, recording)
            }
        };
        serde_json::to_string(&outcome).map_err(wrong)
    })
}

/// The costs that come with the project: name and TOML of each.
#[pyfunction]
pub fn cost_presets() -> Vec<(&'static str, &'static str)> {
    costs::PRESETS.to_vec()
}

/// All costs, as TOML has them; what `text` does not say is as by default. Raises ValueError when it
/// makes no sense.
#[pyfunction]
pub fn check_costs(text: &str) -> PyResult<String> {
    let costs = Costs::parse(text).map_err(wrong)?;
    serde_json::to_string(&costs).map_err(wrong)
}

/// Raises ValueError when `mix` is no workload; how many threads it has.
#[pyfunction]
pub fn check_mix(mix: &str) -> PyResult<u32> {
    Mix::parse(mix).map(|mix| mix.count()).map_err(wrong)
}
