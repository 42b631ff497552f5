//! The lock that the machine's threads share: one under a policy, or a rival without any.

mod policy;
mod rival;

pub use policy::PolicyGil;
pub use rival::{Every, Fair, Plain, Rival};

use std::path::Path;
use std::{fmt, io};

use deconvoy_gil::os::PthreadMutex;
use deconvoy_policy::Spec;

/// A thread at the lock. A number belongs to one thread as long as the lock lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Me {
    pub number: u32,
    pub priority: i8,
}

/// A lock that lets one thread at a time run the machine's instructions.
pub trait Gil: Sync {
    /// The lock, held: given up when it is dropped, or by [`Gil::release`].
    type Held<'g>
    where
        Self: 'g;

    fn acquire(&self, me: Me) -> Self::Held<'_>;

    fn release<'g>(&'g self, held: Self::Held<'g>) {
        drop(held);
    }

    /// Whether the holder is to give way.
    fn is_asked(&self) -> bool;

    /// The holder has given way, which answers what it was asked.
    fn answered(&self) {}

    /// After how many instructions the holder gives way unasked.
    fn instructions(&self) -> Option<u32>;

    /// A thread begins, before it takes the lock.
    fn start_thread(&self, name: &str) -> Me;

    fn end_thread(&self, _me: Me) {}
}

/// A policy or a rival, as a user names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice<'s> {
    /// One that [`Spec::parse`] accepts.
    Policy(&'s str),
    Rival(Rival, Every),
}

/// Why a text names neither; fit for a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChoiceError(String);

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ChoiceError {}

impl<'s> Choice<'s> {
    /// Reads a policy, or `RIVAL[:TIME|:INSTRUCTIONS]`.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &'s str) -> Result<Choice<'s>, ChoiceError> {
        let (name, every) = text.split_once(':').unwrap_or((text, ""));
        if let Some(rival) = Rival::named(name) {
            let every = Every::parse(every).map_err(ChoiceError)?;
            return Ok(Choice::Rival(rival, every));
        }
        if name == "stock" {
            let why = "stock is CPython's own lock; its rule on real threads is lab:timeout";
            return Err(ChoiceError(why.into()));
        }
        match Spec::parse(text) {
            Ok(_) => Ok(Choice::Policy(text)),
            Err(error) => {
                let rivals: Vec<_> = Rival::ALL.iter().map(|rival| rival.name()).collect();
                let rivals = rivals.join(", ");
                Err(ChoiceError(format!("{error}; or, without a policy, {rivals}")))
            }
        }
    }
}

/// Any lock.
pub enum AnyGil {
    Policy(Box<PolicyGil>),
    Std(Plain<std::sync::Mutex<()>>),
    ParkingLot(Plain<parking_lot::Mutex<()>>),
    Fair(Plain<Fair>),
    Pthread(Plain<PthreadMutex>),
}

impl AnyGil {
    /// Makes the lock for up to `threads` threads. `trace`: a new file for the trace of a policy's
    /// lock; a rival has none.
    ///
    /// # Errors
    /// The trace cannot be made.
    pub fn new(choice: Choice<'_>, threads: usize, trace: Option<&Path>) -> io::Result<AnyGil> {
        let (rival, every) = match choice {
            Choice::Policy(text) => {
                let gil = PolicyGil::new(text, threads, trace)?;
                return Ok(AnyGil::Policy(Box::new(gil)));
            }
            Choice::Rival(rival, every) => (rival, every),
        };
        if trace.is_some() {
            let why = format!("{}: a lock without a policy leaves no trace", rival.name());
            return Err(io::Error::other(why));
        }
        Ok(match rival {
            Rival::Std => AnyGil::Std(Plain::new(every)),
            Rival::ParkingLot => AnyGil::ParkingLot(Plain::new(every)),
            Rival::ParkingLotFair => AnyGil::Fair(Plain::new(every)),
            Rival::Pthread => AnyGil::Pthread(Plain::new(every)),
        })
    }
}

/// Does the same with whichever lock it is, compiled for each: no call goes through a table.
#[macro_export]
macro_rules! with_gil {
    ($any:expr, $gil:ident => $does:expr) => {
        match $any {
            $crate::AnyGil::Policy(boxed) => {
                let $gil = &**boxed;
                $does
            }
            $crate::AnyGil::Std($gil) => $does,
            $crate::AnyGil::ParkingLot($gil) => $does,
            $crate::AnyGil::Fair($gil) => $does,
            $crate::AnyGil::Pthread($gil) => $does,
        }
    };
}
