//! The lock under a policy.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use deconvoy_gil::os::{Os, native_id, unix_time};
use deconvoy_gil::{Held, Lock, Parker, Parts, Seat, System};
use deconvoy_policy::{Driver, Slot, Spec, WaiterId};
use deconvoy_trace::create;
use deconvoy_trace::format::{FLAG_COUNTS_INSTRUCTIONS, Kind};
use deconvoy_trace::notes::{Notes, Threads};
use deconvoy_trace::record::{About, Recorder};

use super::{Gil, Me};

/// What the lock is made of. It lives as long as the process: a lab is one experiment, and its
/// threads may outlast whoever began it.
struct Memory {
    word: AtomicU32,
    parkers: Box<[Parker]>,
    native_ids: Box<[AtomicU32]>,
    records: Box<[AtomicU16]>,
    started: AtomicU32,
}

/// How the notes find a thread's record.
pub struct Records(&'static Memory);

impl Threads for Records {
    fn record_of(&self, who: WaiterId) -> u16 {
        self.0.records.get(who.0 as usize).map_or(0, |record| record.load(Ordering::Relaxed))
    }

    fn core(&self) -> Option<u32> {
        Os { native_ids: &[] }.core()
    }
}

pub struct PolicyGil {
    spec: Spec<'static>,
    memory: &'static Memory,
    recorder: Option<Recorder>,
    lock: Lock<'static, Os<'static>, Notes<Records>>,
}

/// How many threads can run at a time here.
pub fn cores() -> u32 {
    let found = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(found).unwrap_or(u32::MAX)
}

fn leak<T: Clone>(value: T, count: usize) -> &'static mut [T] {
    Box::leak(vec![value; count].into_boxed_slice())
}

impl PolicyGil {
    /// `policy`: one that [`Spec::parse`] accepts.
    pub(super) fn new(policy: &str, threads: usize, trace: Option<&Path>) -> io::Result<PolicyGil> {
        let policy: &'static str = Box::leak(policy.into());
        let spec = Spec::parse(policy).map_err(|error| io::Error::other(error.to_string()))?;
        let driver = Driver { cores: cores(), counts_instructions: true };
        let memory: &'static Memory = Box::leak(Box::new(Memory {
            word: AtomicU32::new(0),
            parkers: (0..threads).map(|_| Parker::new()).collect(),
            native_ids: (0..threads).map(|_| AtomicU32::new(0)).collect(),
            records: (0..threads).map(|_| AtomicU16::new(0)).collect(),
            started: AtomicU32::new(0),
        }));
        let system = Os { native_ids: &memory.native_ids };
        let recorder = trace.map(|path| begin_trace(path, policy, driver, &system)).transpose()?;
        let parts = Parts {
            policy: spec.build(driver, leak(Slot::default(), threads)),
            word: &memory.word,
            parkers: &memory.parkers,
            known: leak(0, threads),
            cores: driver.cores,
            observer: Notes::new(recorder, 0, Records(memory)),
            sees_all: recorder.is_some(),
        };
        Ok(PolicyGil { spec, memory, recorder, lock: Lock::new(parts, system) })
    }

    /// How often the lock went from one thread to another.
    pub fn switches(&self) -> u64 {
        self.lock.switches()
    }
}

fn begin_trace(path: &Path, policy: &str, driver: Driver, system: &Os<'_>) -> io::Result<Recorder> {
    let command: Vec<u8> =
        std::env::args().flat_map(|argument| [argument.as_bytes(), b"\0"].concat()).collect();
    let now = system.now();
    let recorder = create::create(
        path,
        create::RING_BYTES,
        About {
            pid: std::process::id(),
            parent_pid: std::os::unix::process::parent_id(),
            cores: driver.cores,
            flags: FLAG_COUNTS_INSTRUCTIONS,
            start_ns: now.0,
            start_unix_ns: unix_time().0,
            policy: policy.as_bytes(),
            runtime: b"lab",
            command: &command,
        },
    )?;
    recorder.header().locks.fetch_add(1, Ordering::Relaxed);
    recorder.write(now.0, Kind::LockStart, 0, 0, 0);
    Ok(recorder)
}

impl Gil for PolicyGil {
    type Held<'g> = Held<'g, 'static, Os<'static>, Notes<Records>>;

    #[inline]
    fn acquire(&self, me: Me) -> Self::Held<'_> {
        self.lock.acquire(Seat { who: WaiterId(me.number), generation: 1, priority: me.priority })
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.lock.is_asked()
    }

    fn instructions(&self) -> Option<u32> {
        self.spec.instructions()
    }

    /// # Panics
    /// More threads begin than the lock was made for.
    fn start_thread(&self, name: &str) -> Me {
        let number = self.memory.started.fetch_add(1, Ordering::Relaxed);
        let place = number as usize;
        assert!(place < self.memory.parkers.len(), "the lock was made for fewer threads");
        let native_id = native_id();
        self.memory.native_ids[place].store(native_id, Ordering::Relaxed);
        if let Some(recorder) = self.recorder {
            let record = recorder.start_thread(self.lock.system().now().0, native_id);
            recorder.set_name(record, name.as_bytes());
            self.memory.records[place].store(record, Ordering::Relaxed);
        }
        Me { number, priority: self.spec.priority(name.as_bytes(), native_id) }
    }

    fn end_thread(&self, me: Me) {
        if let Some(recorder) = self.recorder {
            let record = self.memory.records[me.number as usize].load(Ordering::Relaxed);
            recorder.end_thread(self.lock.system().now().0, record);
        }
    }
}
