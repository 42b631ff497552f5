# frozen_string_literal: true

# Required by the Ruby under test (`ruby -r`) before its own `test/runner.rb`: writes each event to
# a file at once, so that it outlives a crash.
#
# The first arguments are the file for the events and one that names the methods wanted; the rest is
# for `test/runner.rb`. Ruby 2.7 and later run it.

require "json"

module Recorder
  # Of the classes by which a method says that it is skipped, or that it failed (2.7's, and later).
  SKIPS = %w[MiniTest::Skip Test::Unit::PendedError].freeze
  FAILURES = %w[MiniTest::Assertion Test::Unit::AssertionFailedError].freeze

  EVENTS, chosen = ARGV.shift(2)
  chosen = JSON.parse(File.read(chosen))
  ONLY, LEFT_OUT = chosen.values_at("only", "left_out")
  HERE = Process.pid

  class << self
    attr_accessor :running

    def note(event, method, said)
      return unless Process.pid == HERE

      # Opened and closed for each line: the tests look for descriptors left open.
      File.open(EVENTS, "a") { |file| file.write(JSON.generate([event, method, said]), "\n") }
    end

    def said(error)
      text = "#{error.class}: #{error.message}"
      text.encode("UTF-8", invalid: :replace, undef: :replace).scrub[0, 300]
    end

    def outcome(error)
      names = error.class.ancestors.map(&:name)
      return "skip" unless (names & SKIPS).empty?

      (names & FAILURES).empty? ? "error" : "fail"
    end

    def runs?(method)
      !LEFT_OUT.include?(method) && (ONLY.nil? || ONLY.include?(method))
    end
  end

  module Methods
    def test_methods
      super.select { |method| Recorder.runs?("#{self}##{method}") }
    end
  end

  module Run
    def run(*)
      method = "#{self.class}##{__name__}"
      Recorder.running = method
      Recorder.note("start", method, "")
      result = super
      Recorder.note("stop", method, "")
      Recorder.running = nil
      result
    end
  end

  module Record
    def record(suite, method, assertions, time, error)
      outcome, said = error ? [Recorder.outcome(error), Recorder.said(error)] : ["pass", ""]
      Recorder.note(outcome, "#{suite}##{method}", said)
      super
    end
  end
end

# The first of all, so it is the last to run. A method that ends the process has not come to its own
# end, which is for whoever reads the events to find.
at_exit do
  status = $!.is_a?(SystemExit) ? $!.status : ($! ? 1 : 0)
  Recorder.note("end", "", status & 255) unless Recorder.running
end

require "test/unit"
Test::Unit::TestCase.singleton_class.prepend(Recorder::Methods)
Test::Unit::TestCase.prepend(Recorder::Run)
Test::Unit::Runner.prepend(Recorder::Record)
