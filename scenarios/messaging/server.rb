# The messaging server: echoes size-prefixed messages while CPU-bound threads count.
#
# Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this folder
# for what each line means.
require "fiber"
require "json"
require "optparse"
require "socket"

# So far a fiber counts before it lets others run: a fiber is not interrupted.
COUNTS_AT_A_TIME = 1000

def serve(listener)
  loop do
    conn = listener.accept
    conn.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    while (head = conn.read(4))
      message = conn.read(head.unpack1("N"))
      conn.write(head)
      conn.write(message)
    end
    conn.close
  end
end

def spin(counts, place)
  n = 0
  loop do
    n += 1
    counts[place] = n
  end
end

def threads(listener, counts, priority)
  Thread.new { serve(listener) }
  counts.each_index { |place| Thread.new { spin(counts, place) }.priority = priority }
  while $stdin.gets
    yield
  end
end

# What a fiber reads: so many bytes, as soon as they are there; nil at the end.
def read_exactly(conn, size)
  data = +""
  while data.bytesize < size
    more = conn.read_nonblock(size - data.bytesize, exception: false)
    return nil if more.nil?

    more == :wait_readable ? Fiber.yield(conn) : data << more
  end
  data
end

def write_all(conn, data)
  until data.empty?
    written = conn.write_nonblock(data, exception: false)
    written == :wait_writable ? Fiber.yield : data = data.byteslice(written..)
  end
end

# Fibers, each of which says what it waits for to be readable, or nothing if it goes on.
def fibers(listener, counts)
  server = Fiber.new do
    loop do
      conn = listener.accept_nonblock(exception: false)
      next Fiber.yield(listener) if conn == :wait_readable

      conn.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
      while (head = read_exactly(conn, 4))
        message = read_exactly(conn, head.unpack1("N"))
        write_all(conn, head)
        write_all(conn, message)
      end
      conn.close
    end
  end
  counting = counts.each_index.map do |place|
    Fiber.new do
      loop do
        COUNTS_AT_A_TIME.times { counts[place] += 1 }
        Fiber.yield
      end
    end
  end
  waits_for = server.resume
  loop do
    ready, = IO.select([waits_for, $stdin].compact, nil, nil, counting.empty? && waits_for ? nil : 0)
    if ready&.include?($stdin)
      break unless $stdin.gets

      yield
    end
    waits_for = server.resume if waits_for.nil? || ready&.include?(waits_for)
    counting.each(&:resume)
  end
end

args = { mode: "thread", workers: 0, priority: 0 }
OptionParser.new do |options|
  options.on("--mode MODE", %w[thread green])
  options.on("--workers N", Integer)
  options.on("--priority N", Integer)
end.parse!(into: args)
$stdout.sync = true
listener = TCPServer.new("127.0.0.1", 0)
counts = [0] * args[:workers]
puts JSON.generate(port: listener.addr[1])
say = lambda do
  at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  puts JSON.generate(at: at, counts: counts)
end
args[:mode] == "thread" ? threads(listener, counts, args[:priority], &say) : fibers(listener, counts, &say)
