# Counts down, in one thread or split over several, or over processes.
#
# Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.
require "json"
require "optparse"

def clock
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def countdown(n)
  n -= 1 while n > 0
end

args = { mode: "sequential", workers: 1, work: 100_000_000, priority: 0 }
OptionParser.new do |options|
  options.on("--mode MODE", %w[sequential thread fork])
  options.on("--workers N", Integer)
  options.on("--work COUNT", Integer)
  options.on("--priority N", Integer)
end.parse!(into: args)

part = args[:work] / args[:workers]
# From Ruby 3.1 on.
collected_ms = GC.stat[:time]
begun = clock
case args[:mode]
when "sequential"
  countdown(args[:work])
when "thread"
  threads = Array.new(args[:workers]) { Thread.new { countdown(part) } }
  threads.each { |thread| thread.priority = args[:priority] }.each(&:join)
when "fork"
  args[:workers].times { fork { countdown(part) } }
  ended = Process.waitall
  abort "a child failed" unless ended.all? { |_, status| status.success? }
end
said = { elapsed_s: clock - begun }
said[:gc_s] = (GC.stat[:time] - collected_ms) / 1000.0 if collected_ms
puts JSON.generate(said)
