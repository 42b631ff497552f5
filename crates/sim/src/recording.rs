//! The trace of a simulated run, in the format of the others.

use std::io;
use std::path::Path;

use deconvoy_mix::Mix;
use deconvoy_policy::{Action, Event, Nanos, Observer, WaiterId};
use deconvoy_trace::create::{self, RING_BYTES};
use deconvoy_trace::format::{FLAG_COUNTS_INSTRUCTIONS, Kind, THREAD_CAPACITY};
use deconvoy_trace::notes::{Notes, Threads};
use deconvoy_trace::record::{About, Recorder};

use crate::engine::{BEGUN, Placed, World};

/// The numbers of the threads are those of their records, less the record of the others.
struct Numbers {
    core: u32,
}

impl Threads for Numbers {
    fn record_of(&self, who: WaiterId) -> u16 {
        u16::try_from(who.0 + 1).unwrap_or(0)
    }

    fn core(&self) -> Option<u32> {
        Some(self.core)
    }
}

/// Writes a run down.
pub struct Recording {
    notes: Notes<Numbers>,
    recorder: Recorder,
}

impl Recording {
    /// Begins the trace of a run in the new file `path`; `command`: its words, what is simulated.
    ///
    /// # Errors
    /// The file cannot be made, or there are more threads than a trace has records for.
    pub fn begin(
        path: &Path,
        policy: &str,
        command: &str,
        mix: &Mix,
        world: World,
    ) -> io::Result<Recording> {
        if mix.count() as usize >= THREAD_CAPACITY {
            let most = THREAD_CAPACITY - 1;
            return Err(io::Error::other(format!("a trace has room for {most} threads")));
        }
        let words = command.replace(' ', "\0");
        let about = About {
            pid: std::process::id(),
            parent_pid: 0,
            cores: world.cores,
            flags: FLAG_COUNTS_INSTRUCTIONS,
            start_ns: BEGUN,
            start_unix_ns: 0,
            policy: policy.as_bytes(),
            runtime: b"sim",
            command: words.as_bytes(),
        };
        let recorder = create::create(path, RING_BYTES, about)?;
        recorder.write(BEGUN, Kind::LockStart, 0, 0, 0);
        // No thread of the system's has such a number.
        let mut ids = u32::from(u16::MAX)..;
        for group in &mix.threads {
            for number in 0..group.count {
                let thread = recorder.start_thread(BEGUN, ids.next().unwrap_or(u32::MAX));
                let name = group.thread_name(number);
                recorder.set_name(thread, name.as_bytes());
            }
        }
        let notes = Notes::new(Some(recorder), 0, Numbers { core: 0 });
        Ok(Recording { notes, recorder })
    }
}

impl Placed for Recording {
    fn on_core(&mut self, core: u32) {
        self.notes.threads.core = core;
    }

    /// Whoever has the lock has it until then.
    fn ended(&mut self, now: Nanos) {
        self.recorder.write(now.0, Kind::LockEnd, 0, 0, 0);
    }
}

impl Observer for Recording {
    fn event(&mut self, now: Nanos, event: Event) {
        self.notes.event(now, event);
    }

    fn action(&mut self, now: Nanos, action: Action) {
        self.notes.action(now, action);
    }
}
