# The library moves no thread, and lets the program set where they run.
require_relative "hazard"
def allowed
  File.read("/proc/thread-self/status")[/Cpus_allowed:\s*(\S+)/, 1]
end
before = allowed
computing(2) { echo(50); check(Thread.new { allowed }.value == before, "another thread") }
check(allowed == before, "the main one")
finish
