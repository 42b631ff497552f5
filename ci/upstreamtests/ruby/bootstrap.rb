# frozen_string_literal: true

# Required by a Ruby (`ruby -r`) before its own `test/runner.rb`, so that this runs files of its
# `bootstraptest` as well: each assertion there, whose program gets a Ruby of its own, becomes a
# method, named after its line. Only what those for threads, Ractors, fibers, forks and files use.

require "tempfile"
require "test/unit"

class BootstrapTest < Test::Unit::TestCase
  # A program that takes longer hangs: the longest takes a few seconds alone.
  LIMIT_S = 60

  def self.add(assertion, &check)
    line = caller_locations(2, 1)[0].lineno
    name = "test_#{assertion}_at_#{line}"
    name += "_again" while method_defined?(name)
    define_method(name, &check)
  end

  # Some programs know their lines, so it is as in the `bootstraptest/runner.rb` of the version.
  def printing(source)
    return "print(begin; #{source}; end)" if RUBY_VERSION < "3.3"

    "\nclass BT_Skip < Exception; end; def skip(msg) = raise(BT_Skip, msg.to_s)\n" \
      "print(begin; #{source}; rescue BT_Skip; $!.message; end)"
  end

  def result_of(source, options = "", limit: LIMIT_S, frozen_string_literal: nil)
    Tempfile.create(["bootstraptest", ".rb"]) do |file|
      file.puts "#frozen_string_literal:true" if frozen_string_literal
      file.puts printing(source)
      file.close
      command = ["--disable-gems", "-W0", *options.split, file.path]
      EnvUtil.invoke_ruby(command, "", true, true, timeout: limit)
    end
  end
end

# What `bootstraptest/runner.rb` defines for its files.
BT = Struct.new(:ruby).new(EnvUtil.rubybin)

def assert_equal(expected, source, message = "", options = "", **more)
  BootstrapTest.add("equal") do
    out, errors = result_of(source, options, **more)
    assert_equal(expected, out, "#{message} #{errors}")
  end
end

def assert_match(pattern, source, message = "")
  BootstrapTest.add("match") do
    out, errors = result_of(source)
    assert_match(pattern, out, "#{message} #{errors}")
  end
end

def assert_normal_exit(source, message = "", ignored = [], timeout: BootstrapTest::LIMIT_S, **)
  BootstrapTest.add("normal_exit") do
    _, errors, status = result_of(source, limit: timeout)
    signal = status.signaled? && Signal.signame(status.termsig)
    assert(!signal || (ignored || []).include?(signal), "#{message} #{signal} #{errors}")
  end
end

def assert_finish(seconds, source, message = "")
  BootstrapTest.add("finish") { assert(result_of(source, limit: seconds), message) }
end

def rjit_enabled?
  false
end

# How many threads or fibers there may be: not a test.
def show_limit(*); end
