# Requests that are answered beside many threads that compute: whoever waits awake, and on whatever
# condition variable, nobody's turn is lost.
require_relative "hazard"
SERVERS = 6
REQUESTS = 150
[1, 2, 24].each do |count|
  computing(count) do
    talks = Array.new(SERVERS) do
      Thread.new do
        here, there = UNIXSocket.pair
        server = Thread.new do
          REQUESTS.times do
            size = there.readpartial(8).to_i
            there.write("x" * 4)
            there.write("x" * (size - 4))
          end
        end
        answered = Array.new(REQUESTS) do |n|
          here.write((100 + n).to_s)
          here.read(100 + n).bytesize
        end
        server.join
        [here, there].each(&:close)
        answered.sum
      end
    end
    total = SERVERS * REQUESTS.times.sum { |n| 100 + n }
    check(talks.sum(&:value) == total, "answers beside #{count}")
  end
end
finish
