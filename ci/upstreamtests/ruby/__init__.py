"""What of `ci/ruby-tests` knows Ruby."""
