# Many threads at a time, most of them waiting, on sleep, a queue, a pipe.
require_relative "hazard"
computing(2) do
  queue = Queue.new
  reader, writer = IO.pipe
  sleepers = Array.new(200) { |n| Thread.new { sleep(0.001 * (n % 10)); n } }
  poppers = Array.new(100) { Thread.new { queue.pop } }
  reading = Array.new(20) { Thread.new { reader.readpartial(1) } }
  100.times { |n| queue << n }
  20.times { writer.write("x") }
  check(sleepers.sum(&:value) == 19_900, "sleepers")
  check(poppers.map(&:value).sort == (0...100).to_a, "poppers")
  check(reading.map(&:value).join == "x" * 20, "readers")
end
finish
