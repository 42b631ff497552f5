# What a program sees of its threads: one that computes runs, also while it waits for the lock.
require_relative "hazard"
threads = Array.new(3) { Thread.new { loop { 1 + 1 } } }
echo(10)
500.times do |round|
  seen = threads.map(&:status).uniq
  check(seen == ["run"], "status: #{seen}")
  check(threads.none?(&:stop?), "stop?")
  Thread.pass if round % 50 == 0
end
blocked = Thread.new { sleep }
Thread.pass until blocked.stop?
check(blocked.status == "sleep", "one that sleeps")
threads.each(&:kill).each(&:join)
# TracePoint still sees what threads do.
lines = 0
trace = TracePoint.new(:line) { lines += 1 }
computing(1) do
  traced = Thread.new do
    trace.enable(target_thread: Thread.current) if RUBY_VERSION >= "3.2"
    trace.enable if RUBY_VERSION < "3.2"
    50.times do |round|
      Thread.pass if round % 10 == 0
      1 + 1
    end
    trace.disable
  end
  traced.join
end
check(lines >= 100, "lines: #{lines}")
finish
