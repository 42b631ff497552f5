# Thread#raise, Thread#kill, Timeout and ensure, in threads that compute, yield and block.
require_relative "hazard"
ways = [
  -> { loop { 1 + 1 } },
  -> { loop { Thread.pass } },
  -> { sleep },
  -> { Queue.new.pop },
  -> { IO.pipe[0].read },
  lambda do
    Mutex.new.tap(&:lock).synchronize { nil }
  rescue ThreadError # It has that mutex. What another thread raises is not caught.
    loop { 1 + 1 }
  end,
]
computing(1) do
  ways.each do |way|
    cleaned = 0
    begun = Queue.new
    raised = Array.new(3) do
      Thread.new do
        begun << true
        way.call
      rescue ArgumentError => error
        error.message
      ensure
        cleaned += 1
      end
    end
    killed = Array.new(3) do
      Thread.new do
        begun << true
        way.call
      ensure
        cleaned += 1
      end
    end
    6.times { begun.pop }
    raised.each { |one| one.raise(ArgumentError, "mine") }
    killed.each(&:kill)
    check(raised.map(&:value) == ["mine"] * 3, "raised")
    check(killed.all? { |one| one.join(20) } && cleaned == 6, "killed: #{cleaned}")
  end
  10.times do
    Timeout.timeout(0.01) { loop { 1 + 1 } }
    check(false, "it never ends")
  rescue Timeout::Error
    nil
  end
  # What is put off until a block is done.
  done = false
  begun = Queue.new
  held = Thread.new do
    Thread.handle_interrupt(RuntimeError => :never) do
      begun << true
      100_000.times { 1 + 1 }
      done = true
    end
    loop { 1 + 1 }
  rescue RuntimeError
    done
  end
  begun.pop
  held.raise("later")
  check(held.value == true, "handle_interrupt")
end
finish
