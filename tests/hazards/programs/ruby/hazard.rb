# What the programs of this folder share: threads that compute, messages, and how they end.
require "socket"
require "timeout"

RUBY = File.readlink("/proc/self/exe")

def finish
  puts "ok"
  $stdout.flush
end

def check(truth, what)
  return if truth

  warn "failed: #{what}"
  exit!(1)
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# Threads that compute until they are killed.
def computing(count)
  threads = Array.new(count) { Thread.new { loop { 1 + 1 } } }
  yield
ensure
  threads.each(&:kill).each(&:join)
end

# So many messages there and back between two threads; the longest, in seconds.
def echo(count)
  here, there = UNIXSocket.pair
  server = Thread.new { count.times { there.write(there.readpartial(1)) } }
  longest = 0.0
  count.times do
    sent = now
    here.write("x")
    here.readpartial(1)
    longest = [longest, now - sent].max
  end
  server.join
  [here, there].each(&:close)
  longest
end
