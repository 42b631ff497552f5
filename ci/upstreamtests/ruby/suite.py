"""Which of Ruby's tests are run: files and folders below `test/` of its source, and files of
`bootstraptest/`."""

from upstreamtests.ruby.interpreters import choose, named
from upstreamtests.tested import Suite

FULL = ["ruby/test_thread.rb", "ruby/test_thread_queue.rb", "ruby/test_thread_cv.rb"]
FULL += ["ruby/test_threadgroup.rb", "monitor", "ruby/test_fiber.rb", "fiber", "socket"]
FULL += ["ruby/test_process.rb", "ruby/test_signal.rb", "ruby/test_io.rb", "io/wait"]
FULL += ["io/nonblock", "ruby/test_io_timeout.rb", "ruby/test_readpartial.rb"]
FULL += ["ruby/test_pipe.rb", "ruby/test_sleep.rb", "test_timeout.rb", "ruby/test_system.rb"]
FULL += ["ruby/test_beginendblock.rb", "ruby/test_autoload.rb", "ruby/test_settracefunc.rb"]
FULL += ["drb", "net/http", "openssl/test_ssl.rb", "bootstraptest/test_thread.rb"]
FULL += ["bootstraptest/test_fork.rb", "bootstraptest/test_io.rb", "bootstraptest/test_fiber.rb"]
FULL += ["bootstraptest/test_ractor.rb"]
FAST = ["ruby/test_thread_queue.rb", "ruby/test_thread_cv.rb", "ruby/test_threadgroup.rb"]
FAST += ["monitor", "ruby/test_fiber.rb", "fiber", "ruby/test_io_timeout.rb", "test_timeout.rb"]
FAST += ["ruby/test_thread.rb:/[Mm]utex|status|wakeup|kill|priority|local|join|list/"]
FAST += ["ruby/test_process.rb:/fork|detach|wait|popen/", "socket/test_unix.rb", "io/wait"]
FAST += ["bootstraptest/test_thread.rb"]

SUITE = Suite("ci/ruby-tests", "Ruby", "FILE", FULL, FAST, named, choose)
