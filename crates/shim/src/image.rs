//! Where the interpreter lies in memory: its program or its library.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::loader;
use crate::sys::peek;

/// From here, and up to there; 0: not known.
static FROM: AtomicUsize = AtomicUsize::new(0);
static TO: AtomicUsize = AtomicUsize::new(0);

/// Looks for it, when a lock of its was found: to ask the loader later, with a lock of the program's in
/// hand, could wait for ever.
pub fn find() {
    if TO.load(Ordering::Relaxed) == 0
        && let Some((from, to)) = range()
    {
        FROM.store(from, Ordering::Relaxed);
        TO.store(to, Ordering::Relaxed);
    }
}

/// Whether the code at that address is the interpreter's. In a program that is linked to it statically,
/// all of the program's is.
pub fn is_of_interpreter(address: usize) -> bool {
    (FROM.load(Ordering::Relaxed)..TO.load(Ordering::Relaxed)).contains(&address)
}

/// From its first segment to the end of its last, as its own header has them (ELF, 64 bits).
fn range() -> Option<(usize, usize)> {
    const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
    const LOADED: u32 = 1;
    const HEADER: u16 = 56;
    let base = loader::base_of(loader::symbol(c"_PyRuntime") as usize)?;
    let [magic, _, _, _, headers, _, sizes, count] = peek::<8>(base)?;
    if magic as u32 != MAGIC || (sizes >> 48) as u16 != HEADER {
        return None;
    }
    let (mut first, mut end) = (usize::MAX, 0);
    for number in 0..usize::from(count as u16) {
        let at = base.wrapping_add(headers as usize).wrapping_add(number * usize::from(HEADER));
        let [kind, _, from, _, _, bytes] = peek::<6>(at)?;
        if kind as u32 == LOADED {
            first = first.min(from as usize & !0xfff);
            end = end.max((from as usize).wrapping_add(bytes as usize));
        }
    }
    (first < end).then(|| (base, base.wrapping_add(end - first)))
}
