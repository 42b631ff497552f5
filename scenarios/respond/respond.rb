# Thousands of requests that overlap, each in a process, a thread or a fiber of its own.
#
# Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.
require "fiber"
require "json"
require "optparse"

RESPONSE = 512
FORMATTER = Mutex.new

def now_ns
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

def write(output, id, begun_ns)
  time = FORMATTER.synchronize { Time.now.strftime("%Y-%m-%d %H:%M:%S") }
  head = %(<response id="#{id}" begun_ns="#{begun_ns}" ended_ns="#{now_ns}"><time>#{time}</time><body>)
  tail = "</body></response>\n"
  text = head + "." * (RESPONSE - head.bytesize - tail.bytesize) + tail
  raise "not written" unless output.syswrite(text) == RESPONSE
end

def forks(count, output, wait_s)
  count.times do |id|
    begun_ns = now_ns
    fork do
      sleep wait_s
      write(output, id, begun_ns)
      # Nothing to be done at the end of a copy.
      exit!(true)
    end
  end
  ended = Process.waitall
  abort "a child failed" unless ended.all? { |_, status| status.success? }
end

def threads(count, output, wait_s)
  several = Array.new(count) do |id|
    Thread.new(now_ns) do |begun_ns|
      sleep wait_s
      write(output, id, begun_ns)
    end
  end
  several.each(&:join)
end

# Fibers, each of which says how long it sleeps. All sleep as long, so that the first to sleep is the
# first to be woken.
def fibers(count, output, wait_s)
  asleep = Array.new(count) do |id|
    begun_ns = now_ns
    fiber = Fiber.new do
      Fiber.yield wait_s
      write(output, id, begun_ns)
    end
    [now_ns + (fiber.resume * 1e9).to_i, fiber]
  end
  asleep.each do |due_ns, fiber|
    left_ns = due_ns - now_ns
    sleep left_ns / 1e9 if left_ns.positive?
    fiber.resume
  end
end

args = { mode: "thread", workers: 100, wait: 1.0, output: File::NULL }
OptionParser.new do |options|
  options.on("--mode MODE", %w[fork thread green])
  options.on("--workers N", Integer)
  options.on("--wait SECONDS", Float)
  options.on("--output FILE")
end.parse!(into: args)
output = File.open(args[:output], File::WRONLY | File::CREAT | File::APPEND)
begun_ns = now_ns
run = { "fork" => method(:forks), "thread" => method(:threads), "green" => method(:fibers) }
run.fetch(args[:mode]).call(args[:workers], output, args[:wait])
puts JSON.generate(elapsed_s: (now_ns - begun_ns) / 1e9)
