"""Runs in an interpreter that may be tested, as the text of `-c`: prints as JSON what it is, and
which of the tests named it ships. Any Python 3 runs it, for those too old are told apart by it.

Its version also tells the order of the interpreters, and `free_threaded` who has no GIL.
"""

import importlib.util
import json
import sys
import sysconfig


def has(name: str) -> bool:
    try:
        return importlib.util.find_spec("test." + name) is not None
    except ImportError:
        return False


facts = {
    "version": list(sys.version_info[:3]),
    "file": sys.executable,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "tests": [name for name in sys.argv[1:] if has("libregrtest") and has(name)],
}
print(json.dumps(facts))
