# Processes that serve, each with threads, and one that computes in each: a web server's shape.
require_relative "hazard"
server = TCPServer.new("127.0.0.1", 0)
port = server.addr[1]
children = Array.new(2) do
  fork do
    Thread.new { loop { 1 + 1 } }
    threads = Array.new(3) do
      Thread.new do
        loop do
          client = server.accept
          client.write(client.readpartial(10).upcase)
          client.close
        end
      end
    end
    threads.each(&:join)
  end
end
answers = Array.new(60) do
  client = TCPSocket.new("127.0.0.1", port)
  client.write("hello")
  client.read
end
check(answers.uniq == ["HELLO"], "answers: #{answers.uniq}")
children.each { |child| Process.kill(:KILL, child) }
children.each { |child| Process.wait(child) }
finish
