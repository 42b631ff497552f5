# The second form of respond.rb: requests of a client's, over sockets. See README.md in this folder.
require "socket"

# A connection for each request.
class Sockets
  attr_reader :first_ns

  def initialize(wait_s)
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
    @wait_s = wait_s
    @listener = TCPServer.new("127.0.0.1", 0)
    # The kernel makes of it the most that it has.
    @listener.listen(2**31 - 1)
    puts JSON.generate(port: @listener.addr[1])
    $stdout.flush
  end

  def begin(_id)
    conn = @listener.accept
    @first_ns ||= now_ns
    [conn]
  end

  def begin_in_fiber(_id)
    while (conn = @listener.accept_nonblock(exception: false)) == :wait_readable
      Fiber.yield @listener
    end
    @first_ns ||= now_ns
    [conn]
  end

  def respond(conn)
    conn.syswrite("ready\n")
    line = conn.readline
    begun_ns = now_ns
    sleep @wait_s
    write(conn, Integer(line.delete_prefix("respond ")), begun_ns)
    conn.close
  end

  def respond_in_fiber(conn)
    conn.syswrite("ready\n")
    line = +""
    until line.end_with?("\n")
      more = conn.read_nonblock(32, exception: false)
      raise EOFError, "the client has gone" if more.nil?

      more == :wait_readable ? Fiber.yield(conn) : line << more
    end
    begun_ns = now_ns
    Fiber.yield @wait_s
    write(conn, Integer(line.delete_prefix("respond ")), begun_ns)
    conn.close
  end

  def leave(conn)
    conn.close
  end
end
