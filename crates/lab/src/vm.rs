//! The machine: a stack, local variables, instructions, and a look at the eval-breaker at each jump
//! back, as an interpreter has them.
//!
//! A call that may block is an instruction too: the lock is given up before it and taken after it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Gil, Me};

/// One instruction. A jump names the instruction that it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Load(u8),
    Store(u8),
    Const(i64),
    Drop,
    Add,
    Subtract,
    /// Replaces two numbers by 1 if the lower one is more than the upper one, else by 0.
    IsMore,
    JumpIfFalse(u16),
    /// Back to the beginning of a loop: the holder looks whether it is to give way.
    JumpBack(u16),
    /// Shows the number on top to those who count it.
    Publish,
    /// Calls what may block, without the lock; pushes what it says.
    Block(u16),
    /// Calls something with the lock kept; pushes what it says.
    Call(u16),
    End,
}

/// What a program calls without the lock.
pub trait Blocking {
    /// `call`: which one; `argument`: taken from the top of the stack.
    fn block(&mut self, call: u16, argument: i64) -> i64;

    /// The same with the lock kept: what C code does that never looks whether it is to give way.
    fn call(&mut self, _call: u16) -> i64 {
        0
    }
}

impl Blocking for () {
    fn block(&mut self, _: u16, argument: i64) -> i64 {
        argument
    }
}

/// What a thread of the machine shares with others beside the lock.
#[derive(Debug, Default)]
pub struct Shared {
    /// What it has published last.
    pub counter: AtomicU64,
    /// It ends at its next look at the breaker.
    pub stop: AtomicBool,
}

const STACK: usize = 16;
const LOCALS: usize = 8;

/// A thread of the machine.
#[derive(Debug)]
pub struct Thread<'t, G, B> {
    gil: &'t G,
    me: Me,
    shared: &'t Shared,
    blocking: B,
    stack: [i64; STACK],
    top: usize,
    locals: [i64; LOCALS],
}

impl<'t, G: Gil, B: Blocking> Thread<'t, G, B> {
    pub fn new(gil: &'t G, me: Me, shared: &'t Shared, blocking: B) -> Self {
        Thread { gil, me, shared, blocking, stack: [0; STACK], top: 0, locals: [0; LOCALS] }
    }

    pub fn set_local(&mut self, place: usize, value: i64) {
        self.locals[place] = value;
    }

    pub fn local(&self, place: usize) -> i64 {
        self.locals[place]
    }

    fn push(&mut self, value: i64) {
        self.stack[self.top % STACK] = value;
        self.top += 1;
    }

    fn pop(&mut self) -> i64 {
        self.top -= 1;
        self.stack[self.top % STACK]
    }

    /// Takes the lock and runs the program to its end, or until the thread is stopped.
    ///
    /// # Panics
    /// The program jumps out of itself, or takes more from the stack than there is.
    pub fn run(&mut self, program: &[Op]) {
        let gil = self.gil;
        let limit = gil.instructions().map_or(i64::MAX, i64::from);
        let mut left = limit;
        let mut held = gil.acquire(self.me);
        let mut at = 0;
        loop {
            left -= 1;
            let op = program[at];
            at += 1;
            match op {
                Op::Load(place) => self.push(self.locals[usize::from(place) % LOCALS]),
                Op::Store(place) => self.locals[usize::from(place) % LOCALS] = self.pop(),
                Op::Const(value) => self.push(value),
                Op::Drop => self.top -= 1,
                Op::Add => {
                    let (upper, lower) = (self.pop(), self.pop());
                    self.push(lower.wrapping_add(upper));
                }
                Op::Subtract => {
                    let (upper, lower) = (self.pop(), self.pop());
                    self.push(lower.wrapping_sub(upper));
                }
                Op::IsMore => {
                    let (upper, lower) = (self.pop(), self.pop());
                    self.push(i64::from(lower > upper));
                }
                Op::JumpIfFalse(to) => {
                    if self.pop() == 0 {
                        at = usize::from(to);
                    }
                }
                Op::JumpBack(to) => {
                    at = usize::from(to);
                    if gil.is_asked() || left <= 0 {
                        gil.answered();
                        gil.release(held);
                        held = gil.acquire(self.me);
                        left = limit;
                    }
                    if self.shared.stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Op::Publish => {
                    let count = self.pop().cast_unsigned();
                    self.shared.counter.store(count, Ordering::Relaxed);
                }
                Op::Block(call) => {
                    let argument = self.pop();
                    gil.release(held);
                    let said = self.blocking.block(call, argument);
                    held = gil.acquire(self.me);
                    left = limit;
                    self.push(said);
                }
                Op::Call(call) => {
                    let said = self.blocking.call(call);
                    self.push(said);
                }
                Op::End => break,
            }
        }
        gil.release(held);
    }
}

/// Counts the number in local 0 down to nothing.
pub const COUNT_DOWN: &[Op] = &[
    Op::Load(0),
    Op::Const(0),
    Op::IsMore,
    Op::JumpIfFalse(9),
    Op::Load(0),
    Op::Const(1),
    Op::Subtract,
    Op::Store(0),
    Op::JumpBack(0),
    Op::End,
];

/// Counts without end, and shows how far it is.
pub const SPIN: &[Op] =
    &[Op::Load(0), Op::Const(1), Op::Add, Op::Store(0), Op::Load(0), Op::Publish, Op::JumpBack(0)];
