"""What `ci/cpython-tests` and `ci/ruby-tests` are made of: here what both share, in the packages
what differs by language."""
