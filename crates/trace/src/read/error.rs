//! Why a file cannot be read as a trace.

use std::{fmt, io};

/// Its text is one line, fit for a user.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    Empty,
    NotATrace,
    /// The file's format, and the newest that is understood.
    Newer {
        format: u32,
        known: u32,
    },
    /// Cut in front of the events.
    TooShort {
        bytes: u64,
        needed: u64,
    },
    /// A size that this format does not have.
    Size {
        what: &'static str,
        found: u64,
        expected: u64,
    },
    /// The numbers of this thread of the table cannot be.
    Thread(u16),
    RingCapacity(u64),
    ThreadCapacity(u32),
    RingPlace {
        found: u64,
        least: u64,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "cannot be read: {error}"),
            ReadError::Empty => write!(f, "the file is empty: the process wrote no trace"),
            ReadError::NotATrace => write!(f, "not a deconvoy trace"),
            ReadError::Newer { format, known } => write!(
                f,
                "written by a newer deconvoy (format {format}; this one reads up to {known}): \
                 update deconvoy"
            ),
            ReadError::TooShort { bytes, needed } => {
                write!(f, "cut short: {bytes} bytes, and its events begin at byte {needed}")
            }
            ReadError::Size { what, found, expected } => {
                write!(f, "damaged: it says that {what} takes {found} bytes, not {expected}")
            }
            ReadError::Thread(number) => {
                write!(f, "damaged: its numbers of thread {number} cannot be true")
            }
            ReadError::RingCapacity(events) => {
                write!(f, "damaged: it says that its ring holds {events} events")
            }
            ReadError::ThreadCapacity(threads) => {
                write!(f, "damaged: it says that its table holds {threads} threads")
            }
            ReadError::RingPlace { found, least } => write!(
                f,
                "damaged: it says that its events begin at byte {found}, which is before the end \
                 of the thread table at byte {least}"
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}
