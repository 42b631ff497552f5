//! Makes the file of a trace, for drivers that have a standard library.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::MmapRaw;

use crate::record::{About, Recorder, file_bytes};

/// As much of the last events as a trace keeps if nobody says otherwise.
pub const RING_BYTES: u64 = 64 << 20;

/// Begins a trace in the new file `path`, which is mapped as long as the process lives. `ring_bytes`:
/// see [`file_bytes`].
///
/// # Errors
/// The file cannot be made, or there is one.
pub fn create(path: &Path, ring_bytes: u64, about: About<'_>) -> io::Result<Recorder> {
    let (bytes, capacity) = file_bytes(ring_bytes);
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(bytes)?;
    let map: &'static MmapRaw = Box::leak(Box::new(MmapRaw::map_raw(&file)?));
    // SAFETY: the file is new, so of that size and all zero, and stays mapped; a mapping is
    // page-aligned. Nobody else has it but who writes into other people's files.
    Ok(unsafe { Recorder::begin(map.as_mut_ptr(), capacity, about) })
}
