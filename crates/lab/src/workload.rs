//! A workload that is given as data (`crates/mix`), on real threads.
//!
//! - `compute`: instructions, so many as take that long in a thread that has the lock to itself;
//! - `hog`, `native`: the processor, with the lock and without;
//! - `block`: a timer of the kernel's, exact; of nothing: a write to the null device;
//! - `sleep`: the same, with the slack that programs have;
//! - `send`, `receive`: a byte through a pair of sockets, which any thread may take out.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use deconvoy_gil::os::native_id;
use deconvoy_mix::{Amount, Distribution, Group, Mix, Step};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::vm::{Blocking, COUNT_DOWN, Op, Shared, Thread};
use crate::{AnyGil, Choice, Gil, Me, with_gil};

/// What a program's timer is late by at least, as the kernel has it.
const SLACK: Duration = Duration::from_micros(50);

/// The call after the last step: whether to go round again.
const AGAIN: u16 = u16::MAX;

/// A channel: bytes that were sent are at the other end.
struct Channel {
    from: UnixStream,
    to: UnixStream,
}

/// What the threads of a workload share beside the lock.
struct Surroundings<'m> {
    channels: BTreeMap<&'m str, Channel>,
    null: File,
    /// So many rounds of a loop that counts down take a second.
    rounds_per_s: f64,
    shared: Shared,
}

/// One thread's part.
struct Steps<'s> {
    around: &'s Surroundings<'s>,
    steps: Vec<Step<&'s Channel>>,
    random: Pcg64Mcg,
    /// How often it goes round yet.
    left: Option<u32>,
}

impl Steps<'_> {
    fn draw(&mut self, time: Distribution) -> Duration {
        Duration::from_nanos(time.draw(&mut self.random))
    }

    /// A call that the lock is given up for.
    fn make(&mut self, call: usize) -> io::Result<()> {
        match self.steps[call] {
            Step::Native(time) => spin(self.draw(time)),
            Step::Block(time) => match self.draw(time) {
                Duration::ZERO => (&self.around.null).write_all(&[0])?,
                off => std::thread::sleep(off),
            },
            Step::Sleep(time) => std::thread::sleep(self.draw(time) + SLACK),
            Step::Send(channel) => (&channel.from).write_all(&[0])?,
            Step::Receive(channel) => (&channel.to).read_exact(&mut [0])?,
            Step::Compute(_) | Step::Hog(_) => {}
        }
        Ok(())
    }

    fn must_make(&mut self, call: usize) {
        self.make(call).expect("files and sockets of our own");
    }

    fn goes_on(&mut self) -> bool {
        self.left = self.left.map(|left| left - 1);
        self.left != Some(0)
    }
}

impl Blocking for Steps<'_> {
    fn block(&mut self, call: u16, argument: i64) -> i64 {
        self.must_make(usize::from(call));
        argument
    }

    fn call(&mut self, call: u16) -> i64 {
        if call == AGAIN {
            return i64::from(self.goes_on());
        }
        match self.steps[usize::from(call)] {
            Step::Compute(Amount::Of(time)) => {
                let rounds = self.draw(time).as_secs_f64() * self.around.rounds_per_s;
                rounds as i64
            }
            Step::Hog(time) => {
                spin(self.draw(time));
                0
            }
            _ => 0,
        }
    }
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The loop of a group as a program of the machine's. A mix has few enough steps for that.
fn program(group: &Group) -> Vec<Op> {
    let mut made = Vec::new();
    for (step, call) in group.steps.iter().zip(0..) {
        let here = made.len() as u16;
        match step {
            Step::Compute(Amount::Forever) => {
                made.extend([Op::Const(1), Op::Const(1), Op::Add, Op::Drop, Op::JumpBack(here)]);
            }
            Step::Compute(Amount::Of(_)) => {
                made.extend([Op::Call(call), Op::Store(0)]);
                let from = here + 2;
                made.extend(COUNT_DOWN.iter().take_while(|&&op| op != Op::End).map(
                    |&op| match op {
                        Op::JumpIfFalse(to) => Op::JumpIfFalse(from + to),
                        Op::JumpBack(to) => Op::JumpBack(from + to),
                        other => other,
                    },
                ));
            }
            Step::Hog(_) => made.extend([Op::Call(call), Op::Drop]),
            _ => made.extend([Op::Const(0), Op::Block(call), Op::Drop]),
        }
    }
    let end = made.len() as u16 + 3;
    made.extend([Op::Call(AGAIN), Op::JumpIfFalse(end), Op::JumpBack(0), Op::End]);
    made
}

/// How many rounds of a loop that counts down a thread makes in a second that has the lock to itself:
/// the best of some trials.
fn rounds_per_s() -> f64 {
    const ROUNDS: i64 = 100_000;
    let gil = Choice::parse("std").ok().and_then(|std| AnyGil::new(std, 1, None).ok());
    let Some(gil) = gil else { return 1e8 };
    let shared = Shared::default();
    let trial = || {
        let begun = Instant::now();
        with_gil!(&gil, gil => {
            let mut thread = Thread::new(gil, gil.start_thread("trial"), &shared, ());
            thread.set_local(0, ROUNDS);
            thread.run(COUNT_DOWN);
        });
        ROUNDS as f64 / begun.elapsed().as_secs_f64()
    };
    (0..20).map(|_| trial()).fold(1.0, f64::max)
}

/// The calling thread's timers are exact from now on, if the kernel lets us say so.
fn exact_timers() {
    let place = format!("/proc/{}/timerslack_ns", native_id());
    if let Ok(mut file) = OpenOptions::new().write(true).open(place) {
        let _ = file.write_all(b"1");
    }
}

/// Runs a workload until its end, on threads that are left behind: they last as long as the process.
/// Returns the time that it took.
///
/// # Errors
/// There are no sockets, or no threads.
pub fn run(gil: &'static AnyGil, mix: &'static Mix, seed: u64) -> io::Result<Duration> {
    let mut channels = BTreeMap::new();
    for name in mix.channels().into_keys() {
        let (from, to) = UnixStream::pair()?;
        channels.insert(name, Channel { from, to });
    }
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    let rounds_per_s = rounds_per_s();
    let shared = Shared::default();
    let around: &'static _ =
        Box::leak(Box::new(Surroundings { channels, null, rounds_per_s, shared }));
    let (done, all_done) = mpsc::channel();
    let begun = Instant::now();
    let mut seeds = seed..;
    for group in &mix.threads {
        for number in 0..group.count {
            let seed = seeds.next().unwrap_or(seed);
            let done = group.times.map(|_| done.clone());
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            thread.spawn(move || {
                take_part(gil, around, group, number, seed);
                done.map(|done| done.send(()))
            })?;
        }
    }
    drop(done);
    let end = begun + Duration::from_nanos(mix.duration.0);
    let bounded = mix.threads.iter().filter(|group| group.times.is_some());
    let bounded: u32 = bounded.map(|group| group.count).sum();
    let rest = || end.saturating_duration_since(Instant::now());
    if bounded == 0 {
        std::thread::sleep(rest());
    }
    for _ in 0..bounded {
        if all_done.recv_timeout(rest()).is_err() {
            break;
        }
    }
    around.shared.stop.store(true, Ordering::Relaxed);
    Ok(begun.elapsed())
}

fn take_part(
    gil: &AnyGil,
    around: &'static Surroundings<'static>,
    group: &'static Group,
    number: u32,
    seed: u64,
) {
    exact_timers();
    std::thread::sleep(Duration::from_nanos(group.after.0.saturating_mul(u64::from(number) + 1)));
    let random = Pcg64Mcg::seed_from_u64(seed);
    let made = group.steps.iter().map(|step| step.with_channels(|name| &around.channels[name]));
    let mut steps = Steps { around, steps: made.collect(), random, left: group.times };
    if group.gil {
        let name = group.thread_name(number);
        with_gil!(gil, gil => {
            let me = gil.start_thread(&name);
            let me = Me { priority: me.priority.max(group.priority), ..me };
            Thread::new(gil, me, &around.shared, steps).run(&program(group));
            gil.end_thread(me);
        });
    } else {
        while !around.shared.stop.load(Ordering::Relaxed) {
            for call in 0..group.steps.len() {
                steps.must_make(call);
            }
            if !steps.goes_on() {
                return;
            }
        }
    }
}
