# Mutexes, condition variables, monitors, queues of a size, thread-local values, with threads that compute.
require_relative "hazard"
require "monitor"
computing(2) do
  mutex = Mutex.new
  sum = 0
  Array.new(8) { Thread.new { 500.times { mutex.synchronize { sum += 1 } } } }.each(&:join)
  check(sum == 4_000, "mutex")
  monitor = Monitor.new
  turn = monitor.new_cond
  number = 0
  threads = Array.new(4) do |mine|
    Thread.new do
      50.times do
        monitor.synchronize do
          turn.wait_until { number % 4 == mine }
          number += 1
          turn.broadcast
        end
      end
    end
  end
  threads.each(&:join)
  check(number == 200, "in turn")
  queue = SizedQueue.new(2)
  made = Thread.new { 300.times { |n| queue << n }; queue << nil }
  taken = []
  while (one = queue.pop)
    taken << one
  end
  made.join
  check(taken == (0...300).to_a, "a queue of a size")
  check(mutex.synchronize { ConditionVariable.new.wait(mutex, 0.01); true }, "a wait with a limit")
  Thread.current[:mine] = 1
  check(Thread.new { Thread.current[:mine] }.value.nil?, "thread-local")
end
finish
