//! The interpreter's public C API, as far as a thread's name needs it. Functions are looked up by
//! name when first needed: the library links to no interpreter.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::names::NAME_BYTES;
use crate::real;

/// A `PyObject *`.
type Object = *mut c_void;

const NAMES: [&CStr; 11] = [
    c"PyErr_Occurred",
    c"PyErr_Clear",
    c"PyImport_GetModuleDict",
    c"PyDict_GetItemString",
    c"PyModule_GetDict",
    c"PyDict_Next",
    c"PyDict_Size",
    c"PyObject_GenericGetAttr",
    c"PyUnicode_InternFromString",
    c"PyUnicode_AsUTF8",
    c"Py_DecRef",
];

/// In the order of `NAMES`.
#[repr(C)]
struct Api {
    error_occurred: unsafe extern "C" fn() -> Object,
    error_clear: unsafe extern "C" fn(),
    modules: unsafe extern "C" fn() -> Object,
    get_item: unsafe extern "C" fn(Object, *const c_char) -> Object,
    module_dict: unsafe extern "C" fn(Object) -> Object,
    dict_next: unsafe extern "C" fn(Object, *mut isize, *mut Object, *mut Object) -> c_int,
    dict_size: unsafe extern "C" fn(Object) -> isize,
    generic_get_attr: unsafe extern "C" fn(Object, Object) -> Object,
    unicode: unsafe extern "C" fn(*const c_char) -> Object,
    utf8: unsafe extern "C" fn(Object) -> *const c_char,
    decref: unsafe extern "C" fn(Object),
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
        let first = real::symbol(NAMES.first()?);
        // Acquire pairs with the Release below: the places are seen.
        if FOUND_FOR.load(Ordering::Acquire) != first.addr() {
            for (place, name) in FOUND.iter().zip(NAMES) {
                place.store(real::symbol(name), Ordering::Relaxed);
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

    /// The one thread that is being started; none when several are.
    ///
    /// # Safety
    /// The interpreter's lock is held and its thread state is the calling thread's.
    unsafe fn starting_thread(&self) -> Option<Object> {
        let some = |object: Object| (!object.is_null()).then_some(object);
        // SAFETY: all of these borrow, and a null pointer goes no further; `_limbo` is checked to
        // be a dictionary by its size being asked first, which answers -1 for anything else.
        unsafe {
            let threading = some((self.get_item)(some((self.modules)())?, c"threading".as_ptr()))?;
            let names = some((self.module_dict)(threading))?;
            let limbo = some((self.get_item)(names, c"_limbo".as_ptr()))?;
            if (self.dict_size)(limbo) != 1 {
                return None;
            }
            let (mut place, mut key, mut value) = (0, core::ptr::null_mut(), core::ptr::null_mut());
            let found = (self.dict_next)(limbo, &raw mut place, &raw mut key, &raw mut value) != 0;
            found.then_some(key)
        }
    }

    /// # Safety
    /// As for `starting_thread`.
    unsafe fn name(&self, thread: Object, place: &mut [u8; NAME_BYTES]) -> bool {
        // SAFETY: generic look-up runs no code of the program's; each new reference is dropped;
        // the text lives as long as the name, which is copied first.
        unsafe {
            let attribute = (self.unicode)(c"_name".as_ptr());
            if attribute.is_null() {
                return false;
            }
            let name = (self.generic_get_attr)(thread, attribute);
            (self.decref)(attribute);
            if name.is_null() {
                return false;
            }
            let text = (self.utf8)(name);
            if !text.is_null() {
                let text = CStr::from_ptr(text).to_bytes();
                for (to, from) in place.iter_mut().zip(text) {
                    *to = *from;
                }
            }
            (self.decref)(name);
            !text.is_null()
        }
    }
}

/// Whether the calling thread is starting one of Python's; reads its name if there is a `place`
/// for it. The caller holds a lock of the interpreter's and is inside a call that the interpreter
/// made with its thread state in place.
pub fn starts_thread(place: Option<&mut [u8; NAME_BYTES]>) -> bool {
    let Some(api) = Api::load() else { return false };
    // SAFETY: the lock is held by the calling thread, which `threads::holder` found, and
    // CPython detaches a thread state before it gives its lock up: so it is in place. An error
    // that is pending is left alone; one of ours is cleared.
    unsafe {
        if !(api.error_occurred)().is_null() {
            return false;
        }
        let starts = api.starting_thread().is_some_and(|thread| match place {
            Some(place) => api.name(thread, place),
            None => true,
        });
        if !(api.error_occurred)().is_null() {
            (api.error_clear)();
        }
        starts
    }
}
