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
  head = %(<response id="#{id}" begun_ns="#{begun_ns}" ended_ns="#{now_ns}">) +
         "<time>#{time}</time><body>"
  tail = "</body></response>\n"
  text = head + "." * (RESPONSE - head.bytesize - tail.bytesize) + tail
  raise "not written" unless output.syswrite(text) == RESPONSE
end

# Requests that the program begins by itself, and answers in a file.
class Own
  attr_reader :first_ns

  def initialize(file, wait_s)
    @output = File.open(file, File::WRONLY | File::CREAT | File::APPEND)
    @wait_s = wait_s
    @first_ns = now_ns
  end

  def begin(id)
    [id, now_ns]
  end

  alias begin_in_fiber begin

  def respond(id, begun_ns)
    sleep @wait_s
    write(@output, id, begun_ns)
  end

  def respond_in_fiber(id, begun_ns)
    Fiber.yield @wait_s
    write(@output, id, begun_ns)
  end

  # Another process has it.
  def leave(*); end
end

def forks(count, requests)
  count.times do |id|
    given = requests.begin(id)
    fork do
      requests.respond(*given)
      # Nothing to be done at the end of a copy.
      exit!(true)
    end
    requests.leave(*given)
  end
  ended = Process.waitall
  abort "a child failed" unless ended.all? { |_, status| status.success? }
end

def threads(count, requests)
  several = Array.new(count) do |id|
    Thread.new(*requests.begin(id)) { |*given| requests.respond(*given) }
  end
  several.each(&:join)
end

# Of fibers, each of which says what it waits for: seconds, or what there is to be read from. All
# sleep as long, so that the first to sleep is the first to be woken.
class Scheduler
  def initialize
    @asleep = []
    @reading = {}.compare_by_identity
  end

  def start(&run)
    go_on(Fiber.new(&run))
  end

  def run
    until @asleep.empty? && @reading.empty?
      due_ns, = @asleep.first
      left_s = due_ns && [due_ns - now_ns, 0].max / 1e9
      ready, = IO.select(@reading.keys, nil, nil, left_s)
      ready&.each { |io| go_on(@reading.delete(io)) }
      go_on(@asleep.shift.last) while !@asleep.empty? && @asleep.first.first <= now_ns
    end
  end

  private

  def go_on(fiber)
    waits_for = fiber.resume
    return unless fiber.alive?

    if waits_for.is_a?(Numeric)
      @asleep << [now_ns + (waits_for * 1e9).to_i, fiber]
    else
      @reading[waits_for] = fiber
    end
  end
end

def fibers(count, requests)
  scheduler = Scheduler.new
  scheduler.start do
    count.times do |id|
      given = requests.begin_in_fiber(id)
      scheduler.start { requests.respond_in_fiber(*given) }
    end
  end
  scheduler.run
end

args = { mode: "thread", workers: 100, wait: 1.0, output: File::NULL, sockets: 0 }
OptionParser.new do |options|
  options.on("--mode MODE", %w[fork thread green])
  options.on("--workers N", Integer)
  options.on("--wait SECONDS", Float)
  options.on("--output FILE")
  options.on("--sockets N", Integer)
end.parse!(into: args)
run = { "fork" => method(:forks), "thread" => method(:threads), "green" => method(:fibers) }
# From Ruby 3.1 on.
collected_ms = GC.stat[:time]
if args[:sockets] == 1
  require_relative "sockets"
  requests = Sockets.new(args[:wait])
else
  requests = Own.new(args[:output], args[:wait])
end
run.fetch(args[:mode]).call(args[:workers], requests)
said = { elapsed_s: (now_ns - requests.first_ns) / 1e9 }
said[:gc_s] = (GC.stat[:time] - collected_ms) / 1000.0 if collected_ms
puts JSON.generate(said)
