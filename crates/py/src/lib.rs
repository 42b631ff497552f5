//! `deconvoy._native`: the policies, the traces, the lab and the simulator, for Python. Nothing is decided here.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::offset_of;
use std::path::{Path, PathBuf};

use deconvoy_policy::{About, Setting, Spec, Takes, Unit, catalogue};
use deconvoy_trace::format::Header;
use deconvoy_trace::read::Trace;
use deconvoy_trace::{analyse, export, format};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

mod crash;
mod elf;
mod futures;
mod lab;
mod mutexes;
mod process_global;
mod sim;

create_exception!(deconvoy._native, TraceError, PyValueError, "A file that is no readable trace.");

/// A setting of a policy: name, unit (`ns` or `instructions`), default (None: the program's own), least
/// and most as written, meaning.
type PolicySetting =
    (&'static str, &'static str, Option<u64>, &'static str, &'static str, &'static str);

/// Every policy: name, summary, example, settings; None in place of these: it takes rules.
type PolicyRow = (&'static str, &'static str, &'static str, Option<Vec<PolicySetting>>);

#[pyfunction]
fn policies() -> Vec<PolicyRow> {
    let setting = |it: &Setting| {
        let unit = match it.unit {
            Unit::Time => "ns",
            Unit::Instructions => "instructions",
        };
        let (least, most) = it.range;
        (it.name, unit, it.default, least, most, it.meaning)
    };
    let row = |about: &About| {
        let settings = match about.takes {
            Takes::Settings(settings) => Some(settings.iter().map(setting).collect()),
            Takes::Rules => None,
        };
        (about.name, about.summary, about.example, settings)
    };
    catalogue().iter().map(row).collect()
}

/// Raises ValueError when `text` is no policy.
#[pyfunction]
fn check_policy(text: &str) -> PyResult<()> {
    match Spec::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}

/// A lock profile, as JSON. Raises TraceError when the file is none.
#[pyfunction]
fn lock_profile_json(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| match mutexes::read(&path) {
        Ok(profile) => Ok(profile.to_string()),
        Err(error) => Err(TraceError::new_err(format!("{}: {error}", path.display()))),
    })
}

fn open(path: &Path) -> PyResult<Trace> {
    Trace::open(path).map_err(|error| TraceError::new_err(format!("{}: {error}", path.display())))
}

/// The analysis of one trace file, as JSON.
#[pyfunction]
fn report_json(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let report = analyse::report(&open(&path)?);
        serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))
    })
}

/// What the threads of one trace file did, by groups, as JSON: a thread belongs to the group that it is
/// named after, with or without a number. Raises ValueError when the beginning of the trace was
/// overwritten.
#[pyfunction]
fn groups_json(py: Python<'_>, path: PathBuf, names: Vec<String>) -> PyResult<String> {
    py.detach(|| {
        let trace = open(&path)?;
        if trace.overwritten > 0 {
            let why = "its first events were overwritten: let the workload take less time";
            return Err(PyValueError::new_err(format!("{}: {why}", path.display())));
        }
        serde_json::to_string(&analyse::groups(&trace, &names))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    })
}

/// Opens the files one after the other for `write`, and says why some cannot be read; an error if
/// none can.
fn export_each(
    paths: &[PathBuf],
    mut write: impl FnMut(Trace) -> std::io::Result<()>,
) -> PyResult<Vec<String>> {
    let mut unreadable = Vec::new();
    for path in paths {
        match Trace::open(path) {
            Ok(trace) => write(trace)?,
            Err(error) => unreadable.push(format!("{}: {error}", path.display())),
        }
    }
    match unreadable.first().filter(|_| unreadable.len() == paths.len()) {
        Some(error) => Err(TraceError::new_err(error.clone())),
        None => Ok(unreadable),
    }
}

/// Writes the traces of one or several processes as one Perfetto trace to the new file `out`.
/// Returns why some could not be read; raises TraceError when none can.
#[pyfunction]
fn export_perfetto(py: Python<'_>, paths: Vec<PathBuf>, out: PathBuf) -> PyResult<Vec<String>> {
    py.detach(|| {
        let mut file = BufWriter::new(File::create_new(out)?);
        let mut numbers = 0..;
        let unreadable = export_each(&paths, |trace| {
            export::perfetto(&trace, numbers.next().unwrap_or(u32::MAX), &mut file)
        })?;
        file.flush()?;
        Ok(unreadable)
    })
}

/// Writes them as trace_event JSON, which is for small traces, to the new file `out`.
#[pyfunction]
fn export_trace_event(py: Python<'_>, paths: Vec<PathBuf>, out: PathBuf) -> PyResult<Vec<String>> {
    py.detach(|| {
        let mut traces = Vec::new();
        let unreadable = export_each(&paths, |trace| {
            traces.push(trace);
            Ok(())
        })?;
        let start_ns = traces.iter().map(|trace| trace.about.start_ns).min().unwrap_or(0);
        let out = BufWriter::new(File::create_new(out)?);
        let mut events = export::TraceEvents::new(out, start_ns);
        for trace in &traces {
            events.add(trace)?;
        }
        events.finish()?;
        Ok(unreadable)
    })
}

/// The timeline of a trace, packed as `crates/trace/src/export/page.rs` says.
#[pyfunction]
fn timeline<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
    let packed = py.detach(|| open(&path).map(|trace| export::page(&trace)))?;
    Ok(PyBytes::new(py, &packed))
}

/// Feeds what a trace recorded to a fresh policy: how many events it was told, how many actions it
/// said, and how many of the events were arrivals at a lock that was held. Raises ValueError where
/// the policy says something else than it did.
#[pyfunction]
fn replay(py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64, u64)> {
    py.detach(|| {
        let replayed = deconvoy_trace::replay::check(&open(&path)?)
            .map_err(|divergence| PyValueError::new_err(divergence.to_string()))?;
        Ok((replayed.events, replayed.actions, replayed.contended))
    })
}

/// What an ELF file says of itself; None when `path` is none. `search`: more folders to look for
/// its libpython in.
#[pyfunction]
#[pyo3(signature = (path, search = Vec::new()))]
fn inspect_elf<'py>(
    py: Python<'py>,
    path: PathBuf,
    search: Vec<PathBuf>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(found) = elf::inspect(&path, &search)? else { return Ok(None) };
    let facts = PyDict::new(py);
    facts.set_item("bits", found.bits)?;
    facts.set_item("machine", found.machine)?;
    facts.set_item("interpreter", found.interpreter)?;
    facts.set_item("needed", found.needed)?;
    facts.set_item("libpython", found.libpython.map(|path| path.to_string_lossy().into_owned()))?;
    facts.set_item("has_python", found.has_python)?;
    facts.set_item("has_runtime", found.has_runtime)?;
    facts.set_item("has_config", found.has_config)?;
    facts.set_item("is_free_threaded", found.is_free_threaded)?;
    facts.set_item("version", found.version)?;
    facts.set_item("starts_programs", found.starts_programs)?;
    Ok(Some(facts))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TraceError", module.py().get_type::<TraceError>())?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("TRACE_VERSION", format::VERSION)?;
    module.add("MAX_CORES", deconvoy_sim::MAX_CORES)?;
    module.add("POLICY_BYTES", offset_of!(Header, runtime) - offset_of!(Header, policy))?;
    module.add_function(wrap_pyfunction!(crash::note_for_crashes, module)?)?;
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(check_policy, module)?)?;
    module.add_function(wrap_pyfunction!(report_json, module)?)?;
    module.add_function(wrap_pyfunction!(lock_profile_json, module)?)?;
    module.add_function(wrap_pyfunction!(groups_json, module)?)?;
    module.add_function(wrap_pyfunction!(export_perfetto, module)?)?;
    module.add_function(wrap_pyfunction!(export_trace_event, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)?;
    module.add_function(wrap_pyfunction!(timeline, module)?)?;
    module.add_function(wrap_pyfunction!(inspect_elf, module)?)?;
    module.add_function(wrap_pyfunction!(lab::check_lab, module)?)?;
    module.add_function(wrap_pyfunction!(lab::lab_countdown, module)?)?;
    module.add_function(wrap_pyfunction!(lab::lab_mix, module)?)?;
    module.add_function(wrap_pyfunction!(lab::calibrate_machine, module)?)?;
    module.add_class::<lab::LabServer>()?;
    module.add_function(wrap_pyfunction!(sim::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(sim::cost_presets, module)?)?;
    module.add_function(wrap_pyfunction!(sim::check_costs, module)?)?;
    module.add_function(wrap_pyfunction!(sim::check_mix, module)?)?;
    futures::register(module)?;
    module.add_class::<process_global::ProcessGlobal>()?;
    Ok(())
}
