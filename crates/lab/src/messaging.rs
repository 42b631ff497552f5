//! `messaging`: a server that echoes size-prefixed messages beside CPU-bound threads
//! (`scenarios/messaging`). The client is another process.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::vm::{Blocking, Op, SPIN, Shared, Thread};
use crate::{AnyGil, Gil, with_gil};

/// The calls that may block.
mod call {
    pub const ACCEPT: u16 = 0;
    /// Receives four bytes: what they say, or 0 at the end of the connection.
    pub const RECEIVE_SIZE: u16 = 1;
    /// Receives so many bytes.
    pub const RECEIVE: u16 = 2;
    pub const SEND_SIZE: u16 = 3;
    /// Sends the bytes that were received last.
    pub const SEND: u16 = 4;
}

/// For each connection, for each message: four calls that may block. Local 0: the size.
const SERVE: &[Op] = &[
    Op::Const(0),
    Op::Block(call::ACCEPT),
    Op::JumpIfFalse(18),
    Op::Const(0),
    Op::Block(call::RECEIVE_SIZE),
    Op::Store(0),
    Op::Load(0),
    Op::JumpIfFalse(0),
    Op::Load(0),
    Op::Block(call::RECEIVE),
    Op::JumpIfFalse(0),
    Op::Load(0),
    Op::Block(call::SEND_SIZE),
    Op::Drop,
    Op::Load(0),
    Op::Block(call::SEND),
    Op::Drop,
    Op::JumpBack(3),
    Op::End,
];

/// The sockets of the server's thread.
struct Sockets {
    listener: TcpListener,
    connection: Option<TcpStream>,
    message: Vec<u8>,
}

impl Sockets {
    fn answer(&mut self, call: u16, argument: i64) -> io::Result<i64> {
        if call == call::ACCEPT {
            let (connection, _) = self.listener.accept()?;
            connection.set_nodelay(true)?;
            self.connection = Some(connection);
            return Ok(1);
        }
        let Some(connection) = &mut self.connection else { return Ok(0) };
        let size = u32::try_from(argument).unwrap_or(0);
        match call {
            call::RECEIVE_SIZE => {
                let mut head = [0; 4];
                connection.read_exact(&mut head)?;
                return Ok(i64::from(u32::from_be_bytes(head)));
            }
            call::RECEIVE => {
                self.message.resize(size as usize, 0);
                connection.read_exact(&mut self.message)?;
            }
            call::SEND_SIZE => connection.write_all(&size.to_be_bytes())?,
            _ => connection.write_all(&self.message)?,
        }
        Ok(1)
    }
}

impl Blocking for Sockets {
    /// A connection that ends or fails ends the loop over its messages.
    fn block(&mut self, call: u16, argument: i64) -> i64 {
        self.answer(call, argument).unwrap_or(0)
    }
}

/// A server that runs until the process ends.
pub struct Server {
    port: u16,
    counters: Vec<Arc<Shared>>,
}

impl Server {
    /// Begins to listen on 127.0.0.1, with `workers` CPU-bound threads beside.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start(gil: Arc<AnyGil>, workers: u32) -> io::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let sockets = Sockets { listener, connection: None, message: Vec::new() };
        let shared = gil.clone();
        std::thread::spawn(move || {
            with_gil!(&*shared, gil => run(gil, "server", &Shared::default(), sockets, SERVE));
        });
        let counters: Vec<Arc<Shared>> = (0..workers).map(|_| Arc::default()).collect();
        for (number, counter) in counters.iter().enumerate() {
            let (gil, counter) = (gil.clone(), counter.clone());
            std::thread::spawn(move || {
                let name = format!("spin-{number}");
                with_gil!(&*gil, gil => run(gil, &name, &counter, (), SPIN));
            });
        }
        Ok(Server { port, counters })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How far each CPU-bound thread has counted.
    pub fn counts(&self) -> Vec<u64> {
        self.counters.iter().map(|shared| shared.counter.load(Ordering::Relaxed)).collect()
    }
}

fn run<G: Gil, B: Blocking>(gil: &G, name: &str, shared: &Shared, blocking: B, program: &[Op]) {
    let me = gil.start_thread(name);
    Thread::new(gil, me, shared, blocking).run(program);
    gil.end_thread(me);
}
