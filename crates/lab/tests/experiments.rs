//! The experiments on real threads and sockets, under every policy and every rival.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use deconvoy_lab::messaging::Server;
use deconvoy_lab::vm::{COUNT_DOWN, SPIN, Shared, Thread};
use deconvoy_lab::{AnyGil, Choice, Gil, countdown, with_gil};
use deconvoy_trace::format::Kind;
use deconvoy_trace::read::Trace;
use deconvoy_trace::replay;

const POLICIES: [&str; 7] =
    ["adaptive", "priority:server=1", "timeout:1ms", "timer:1ms", "mutex:1ms", "fifo", "ticks"];
const RIVALS: [&str; 6] = [
    "std:1ms",
    "parking_lot:100",
    "parking_lot_fair:1ms",
    "pthread",
    "parking_lot_fair:1000",
    "std",
];

fn gil(lock: &str, threads: usize, trace: Option<&PathBuf>) -> AnyGil {
    let choice = Choice::parse(lock).unwrap();
    AnyGil::new(choice, threads, trace.map(PathBuf::as_path)).unwrap()
}

#[test]
fn the_machine_counts() {
    for lock in ["adaptive", "ticks:3", "std"] {
        with_gil!(&gil(lock, 2, None), gil => {
            let me = gil.start_thread("counts");
            let shared = Shared::default();
            let mut thread = Thread::new(gil, me, &shared, ());
            thread.set_local(0, 1_000);
            thread.run(COUNT_DOWN);
            assert_eq!(thread.local(0), 0, "{lock}");
            shared.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            thread.run(SPIN);
            assert_eq!(shared.counter.load(std::sync::atomic::Ordering::Relaxed), 1, "{lock}");
        });
    }
}

#[test]
fn every_lock_lets_threads_count_to_the_end() {
    for lock in POLICIES.into_iter().chain(RIVALS) {
        let ran = countdown::run(&gil(lock, 4, None), 3, 90_000);
        assert!(ran.elapsed_s > 0.0, "{lock}");
        let alone = countdown::run(&gil(lock, 1, None), 0, 1_000);
        assert_ne!(alone.gil_switches, Some(1), "{lock}: one thread alone is not seen");
    }
}

/// Sends messages of different sizes, and gets each of them back.
fn echo(port: u16, messages: usize) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    connection.set_nodelay(true).unwrap();
    for number in 1..=messages {
        let body: Vec<u8> = (0..number * 97).map(|byte| byte as u8).collect();
        connection.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        connection.write_all(&body).unwrap();
        let mut answer = vec![0; body.len() + 4];
        connection.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], (body.len() as u32).to_be_bytes());
        assert!(answer[4..] == body[..]);
    }
}

#[test]
fn a_server_echoes_under_every_lock() {
    for lock in POLICIES.into_iter().chain(RIVALS) {
        let server = Server::start(Arc::new(gil(lock, 8, None)), 0).unwrap();
        echo(server.port(), 20);
        // A connection that ends does not end the server.
        echo(server.port(), 2);
        assert!(server.counts().is_empty());
    }
}

#[test]
fn what_was_recorded_in_the_lab_replays() {
    let folder = std::env::temp_dir().join(format!("deconvoy-lab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (number, policy) in POLICIES.into_iter().enumerate() {
        // It would wait for its turn for a minute.
        let messages = if policy.starts_with("mutex") { 1 } else { 30 };
        let path = folder.join(format!("{number}.trace"));
        let gil = Arc::new(gil(policy, 8, Some(&path)));
        let server = Server::start(gil, 2).unwrap();
        echo(server.port(), messages);
        // It goes on: as long as it takes until enough has happened.
        let trace = loop {
            let trace = Trace::open(&path).unwrap();
            let arrivals = trace.events.iter().filter(|event| event.kind == Kind::Arrive);
            if arrivals.count() > 50 || !trace.is_whole() {
                break trace;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert_eq!((trace.about.runtime.as_str(), trace.about.policy.as_str()), ("lab", policy));
        assert!(trace.about.counts_instructions);
        if trace.is_whole() {
            let replayed =
                replay::check(&trace).unwrap_or_else(|error| panic!("{policy}: {error}"));
            assert!(replayed.contended > 20, "{policy}: without contention this proves nothing");
        } else {
            // It gives the lock up so often that the beginning is overwritten.
            assert!(policy == "ticks" || policy == "fifo", "{policy}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_mistake_is_named() {
    let said = |text| Choice::parse(text).unwrap_err().to_string();
    assert_eq!(
        said("fair"),
        "no policy \"fair\"; there are adaptive, priority, timeout, timer, mutex, fifo, ticks, and stock; \
         or, without a policy, std, parking_lot, parking_lot_fair, pthread"
    );
    for text in ["std:0", "std:5", "pthread:1h", "parking_lot:0ms"] {
        let every = Choice::parse(text);
        assert_eq!(every.is_err(), text != "std:5", "{text}");
    }
    let rival = AnyGil::new(Choice::parse("std").unwrap(), 1, Some("x".as_ref()));
    assert_eq!(rival.err().unwrap().to_string(), "std: a lock without a policy leaves no trace");
}
