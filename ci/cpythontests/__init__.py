"""What `ci/cpython-tests` is made of."""
