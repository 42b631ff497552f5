//! The interpreter's public C API, as far as a thread's name needs it. Functions are looked up by
//! name when first needed: the library links to no interpreter.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;

use crate::names::NAME_BYTES;
use crate::real;

/// A `PyObject *`.
type Object = *mut c_void;

/// # Safety
/// `F` is the function pointer type that CPython gives the function of this name.
unsafe fn function<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let at = real::symbol(name);
    // SAFETY: as the caller says; the sizes are equal.
    (!at.is_null()).then(|| unsafe { transmute_copy(&at) })
}

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

impl Api {
    fn load() -> Option<Api> {
        // SAFETY: the types are those of CPython's documented API, 3.8 to 3.15.
        unsafe {
            Some(Api {
                error_occurred: function(c"PyErr_Occurred")?,
                error_clear: function(c"PyErr_Clear")?,
                modules: function(c"PyImport_GetModuleDict")?,
                get_item: function(c"PyDict_GetItemString")?,
                module_dict: function(c"PyModule_GetDict")?,
                dict_next: function(c"PyDict_Next")?,
                dict_size: function(c"PyDict_Size")?,
                generic_get_attr: function(c"PyObject_GenericGetAttr")?,
                unicode: function(c"PyUnicode_InternFromString")?,
                utf8: function(c"PyUnicode_AsUTF8")?,
                decref: function(c"Py_DecRef")?,
            })
        }
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

/// Reads the name of the thread that the calling one is starting. The caller holds a lock of the
/// interpreter's and is inside a call that the interpreter made with its thread state in place.
pub fn name_of_starting_thread(place: &mut [u8; NAME_BYTES]) -> bool {
    let Some(api) = Api::load() else { return false };
    // SAFETY: the lock is held by the calling thread, which `threads::holder` found, and
    // CPython detaches a thread state before it gives its lock up: so it is in place. An error
    // that is pending is left alone; one of ours is cleared.
    unsafe {
        if !(api.error_occurred)().is_null() {
            return false;
        }
        let named = api.starting_thread().is_some_and(|thread| api.name(thread, place));
        if !(api.error_occurred)().is_null() {
            (api.error_clear)();
        }
        named
    }
}
