# As bounded_queue.py: fifteen threads put items into one bounded queue, nine take them out: seconds.
PRODUCERS, CONSUMERS, ITEMS, PLACES = 15, 9, 4000, 1000

items = Thread::SizedQueue.new(PLACES)
begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
producers = Array.new(PRODUCERS) { Thread.new { ITEMS.times { |number| items << number.to_s } } }
consumers = Array.new(CONSUMERS) { Thread.new { nil while items.pop } }
producers.each(&:join)
items.close
consumers.each(&:join)
puts format("%.3f", Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun)
