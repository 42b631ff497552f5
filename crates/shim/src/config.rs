//! What the command line tells the library, through the environment.
//!
//! | variable | means |
//! |---|---|
//! | `DECONVOY_POLICY` | a policy, or `stock`: only watch. Unset: do nothing at all |
//! | `DECONVOY_TRACE` | the folder that traces go to. Unset: no traces |
//! | `DECONVOY_TRACE_BYTES` | the most that the ring of one trace may take |
//! | `DECONVOY_MUTEXES` | the folder that lock profiles go to, in a library that can make them |
//! | `DECONVOY_EXEC_CHILDREN` | `0`: a Python program that is served does not pass the library on |

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use deconvoy_policy::Spec;

#[derive(Clone, Copy)]
pub struct Config {
    /// `None`: only watch.
    pub policy: Option<Spec<'static>>,
    pub policy_text: &'static [u8],
    pub trace_folder: &'static [u8],
    pub trace_bytes: u64,
    #[cfg(feature = "mutexes")]
    pub mutexes_folder: &'static [u8],
    pub exec_children: bool,
    /// Ruby's threads share native ones (`RUBY_MN_THREADS`).
    pub shares_threads: bool,
    pub cores: u32,
}

const NOTHING: Config = Config {
    policy: None,
    policy_text: &[],
    trace_folder: &[],
    trace_bytes: 64 << 20,
    #[cfg(feature = "mutexes")]
    mutexes_folder: &[],
    exec_children: true,
    shares_threads: false,
    cores: 1,
};

struct Cell(core::cell::UnsafeCell<Config>);

// SAFETY: written once, by the constructor, before `READY` is set; only read after.
unsafe impl Sync for Cell {}

static CONFIG: Cell = Cell(core::cell::UnsafeCell::new(NOTHING));
static READY: AtomicBool = AtomicBool::new(false);

/// Room for a copy of a variable: the program may change its environment.
struct Text<const N: usize>(core::cell::UnsafeCell<MaybeUninit<[u8; N]>>);

// SAFETY: written once, by the constructor, before anything can refer to it.
unsafe impl<const N: usize> Sync for Text<N> {}

static POLICY: Text<512> = Text(core::cell::UnsafeCell::new(MaybeUninit::zeroed()));
#[cfg(feature = "mutexes")]
static MUTEXES: Text<2048> = Text(core::cell::UnsafeCell::new(MaybeUninit::zeroed()));
static FOLDER: Text<2048> = Text(core::cell::UnsafeCell::new(MaybeUninit::zeroed()));

impl<const N: usize> Text<N> {
    /// `None`: it does not fit.
    fn keep(&'static self, text: &[u8]) -> Option<&'static [u8]> {
        // SAFETY: called once for each value, from the constructor, see above; all-zero bytes are
        // initialised bytes.
        let room = unsafe { (*self.0.get()).assume_init_mut() };
        let room = room.get_mut(..text.len())?;
        for (to, from) in room.iter_mut().zip(text) {
            *to = *from;
        }
        Some(room)
    }
}

impl Config {
    /// Whether somebody wants to know of each acquisition: a trace, or a policy that goes by names,
    /// which may change.
    pub fn notes_each(&self) -> bool {
        !self.trace_folder.is_empty() || self.policy.is_some_and(|spec| spec.reads_names())
    }
}

pub fn is_on() -> bool {
    READY.load(Ordering::Acquire)
}

pub fn get() -> &'static Config {
    // SAFETY: see `Cell`; before `READY` nobody calls this but the constructor.
    unsafe { &*CONFIG.0.get() }
}

/// Reads the environment; whether there is anything to do.
///
/// # Safety
/// Called once, before any other thread runs; `environment` is the process's.
pub unsafe fn read(environment: *const *const c_char, cores: u32) -> bool {
    let mut config = Config { cores, ..NOTHING };
    let mut wanted = false;
    let mut entry = environment;
    loop {
        // SAFETY: the environment ends with a null pointer, where the loop ends.
        let text = unsafe { *entry };
        if text.is_null() {
            break;
        }
        // SAFETY: entries are zero-terminated.
        let text = unsafe { CStr::from_ptr(text) }.to_bytes();
        if let Some(value) = text.strip_prefix(b"DECONVOY_POLICY=") {
            let Some(value) = POLICY.keep(value) else { return false };
            let Ok(value) = core::str::from_utf8(value) else { return false };
            config.policy_text = value.as_bytes();
            config.policy = Spec::parse(value).ok();
            // A policy that nobody understands is not replaced by another one.
            wanted = config.policy.is_some() || value == "stock";
        } else if let Some(value) = text.strip_prefix(b"DECONVOY_TRACE=") {
            let Some(value) = FOLDER.keep(value) else { return false };
            config.trace_folder = value;
        } else if let Some(value) = text.strip_prefix(b"DECONVOY_TRACE_BYTES=") {
            let number = core::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            config.trace_bytes = number.unwrap_or(config.trace_bytes);
        } else if text == b"DECONVOY_EXEC_CHILDREN=0" {
            config.exec_children = false;
        } else if let Some(value) = text.strip_prefix(b"RUBY_MN_THREADS=") {
            config.shares_threads = !matches!(value, b"" | b"0");
        }
        #[cfg(feature = "mutexes")]
        if let Some(value) = text.strip_prefix(b"DECONVOY_MUTEXES=") {
            config.mutexes_folder = MUTEXES.keep(value).unwrap_or(&[]);
        }
        // SAFETY: the entry was not the last.
        entry = unsafe { entry.add(1) };
    }
    // Watching without a trace would be work for nobody.
    wanted &= config.policy.is_some() || !config.trace_folder.is_empty();
    // SAFETY: nobody reads it yet.
    unsafe { *CONFIG.0.get() = config };
    READY.store(wanted, Ordering::Release);
    wanted
}
