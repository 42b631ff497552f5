"""What of `ci/cpython-tests` knows CPython."""
