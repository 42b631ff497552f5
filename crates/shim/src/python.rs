//! The interpreter's public C API, as far as a thread's name needs it. Functions are looked up by
//! name when first needed: the library links to no interpreter.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::loader;
use crate::notes::NAME_BYTES;

/// A `PyObject *`.
type Object = *mut c_void;

/// The names and, in the same order, the types of CPython's functions.
macro_rules! api {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        const NAMES: [&CStr; [$($name),*].len()] = [$($name),*];

        #[repr(C)]
        struct Api {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }
    };
}

api! {
    error_occurred = c"PyErr_Occurred": fn() -> Object;
    error_clear = c"PyErr_Clear": fn();
    modules = c"PyImport_GetModuleDict": fn() -> Object;
    get_item = c"PyDict_GetItemString": fn(Object, *const c_char) -> Object;
    module_dict = c"PyModule_GetDict": fn(Object) -> Object;
    dict_next = c"PyDict_Next": fn(Object, *mut isize, *mut Object, *mut Object) -> c_int;
    dict_size = c"PyDict_Size": fn(Object) -> isize;
    generic_get_attr = c"PyObject_GenericGetAttr": fn(Object, Object) -> Object;
    unicode = c"PyUnicode_InternFromString": fn(*const c_char) -> Object;
    utf8 = c"PyUnicode_AsUTF8": fn(Object) -> *const c_char;
    decref = c"Py_DecRef": fn(Object);
}

/// Where the functions were when they were last looked up, and the first one's place once more,
/// written when all the others were.
static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
static FOUND_FOR: AtomicUsize = AtomicUsize::new(0);

impl Api {
    /// To look up one name takes as long as all else that is done here, so what was found counts
    /// while the first one is where it was: the interpreter's library has not been loaded anew.
    fn load() -> Option<Api> {
        let first = loader::symbol(NAMES.first()?);
        // Acquire pairs with the Release below: the places are seen.
        if FOUND_FOR.load(Ordering::Acquire) != first.addr() {
            for (place, name) in FOUND.iter().zip(NAMES) {
                place.store(loader::symbol(name), Ordering::Relaxed);
            }
            FOUND_FOR.store(first.addr(), Ordering::Release);
        }
        let mut found = [null_mut(); NAMES.len()];
        for (to, place) in found.iter_mut().zip(&FOUND) {
            *to = place.load(Ordering::Relaxed);
            if to.is_null() {
                return None;
            }
        }
        // SAFETY: `Api` is so many function pointers, none of them null, of the types of CPython's
        // documented API, 3.8 to 3.15. (Several threads that look up at a time, of interpreters
        // with locks of their own, find the same: one library has these names for everybody.)
        Some(unsafe { transmute::<[*mut c_void; NAMES.len()], Api>(found) })
    }

    /// The dictionary of the threads that are being started.
    ///
    /// # Safety
    /// The interpreter's lock is held and its thread state is the calling thread's.
    unsafe fn limbo(&self) -> Option<Object> {
        let some = |object: Object| (!object.is_null()).then_some(object);
        // SAFETY: all of these borrow, and a null pointer goes no further.
        unsafe {
            let threading = some((self.get_item)(some((self.modules)())?, c"threading".as_ptr()))?;
            let names = some((self.module_dict)(threading))?;
            some((self.get_item)(names, c"_limbo".as_ptr()))
        }
    }

    /// Writes the name of the one thread that is being started to `place`.
    ///
    /// # Safety
    /// As for `limbo`.
    unsafe fn name_of_starting(&self, place: &mut [u8; NAME_BYTES]) {
        // SAFETY: as the caller says; that `_limbo` is a dictionary is told by its size, which is
        // -1 for anything else.
        unsafe {
            if let Some(limbo) = self.limbo()
                && (self.dict_size)(limbo) == 1
                && let Some(thread) = self.only(limbo)
            {
                self.name(thread, place);
            }
        }
    }

    /// The one key of a dictionary.
    ///
    /// # Safety
    /// As for `limbo`; it is a dictionary.
    unsafe fn only(&self, dictionary: Object) -> Option<Object> {
        let (mut place, mut key, mut value) = (0, null_mut(), null_mut());
        // SAFETY: what it writes are references that it lends.
        let found =
            unsafe { (self.dict_next)(dictionary, &raw mut place, &raw mut key, &raw mut value) };
        (found != 0).then_some(key)
    }

    /// # Safety
    /// As for `limbo`.
    unsafe fn name(&self, thread: Object, place: &mut [u8; NAME_BYTES]) {
        // SAFETY: generic look-up runs no code of the program's; each new reference is dropped;
        // the text lives as long as the name, which is copied first.
        unsafe {
            let attribute = (self.unicode)(c"_name".as_ptr());
            if attribute.is_null() {
                return;
            }
            let name = (self.generic_get_attr)(thread, attribute);
            (self.decref)(attribute);
            if name.is_null() {
                return;
            }
            let text = (self.utf8)(name);
            if !text.is_null() {
                let text = CStr::from_ptr(text).to_bytes();
                for (to, from) in place.iter_mut().zip(text) {
                    *to = *from;
                }
            }
            (self.decref)(name);
        }
    }
}

/// Writes the name of the thread that the calling one is starting to `place`, if it is one of
/// Python's, no other one is being started with it, and it can be read. The caller holds a lock of
/// the interpreter's and is inside a call that the interpreter made with its thread state in place.
pub fn name_of_starting(place: &mut [u8; NAME_BYTES]) {
    let Some(api) = Api::load() else { return };
    // SAFETY: the lock is held by the calling thread, which `threads::holder` found, and
    // CPython detaches a thread state before it gives its lock up: so it is in place. An error
    // that is pending is left alone; one of ours is cleared.
    unsafe {
        if !(api.error_occurred)().is_null() {
            return;
        }
        api.name_of_starting(place);
        if !(api.error_occurred)().is_null() {
            (api.error_clear)();
        }
    }
}
