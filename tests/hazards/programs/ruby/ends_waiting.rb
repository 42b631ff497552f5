# Threads are ended while they wait for the lock.
require_relative "hazard"
computing(3) do
  20.times do
    threads = Array.new(10) { Thread.new { loop { Thread.pass } } }
    sleep 0.002
    threads.each(&:kill)
    check(threads.all? { |one| one.join(20) }, "a thread that was killed ends")
  end
end
finish
