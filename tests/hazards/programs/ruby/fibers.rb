# Fibers, and a scheduler of fibers that waits for all of them.
require_relative "hazard"
counter = Fiber.new { n = 0; loop { n += Fiber.yield(n) } }
counter.resume
computing(1) { 1_000.times { counter.resume(1) } }
check(counter.resume(0) == 1_000, "resumed")
threads = Array.new(4) { Thread.new { each = Fiber.new { 3.times { |n| Fiber.yield(n) }; :end }; Array.new(4) { each.resume } } }
check(threads.map(&:value) == [[0, 1, 2, :end]] * 4, "in threads")
enumerator = Enumerator.new { |y| 100.times { |n| y << n } }
computing(2) { check(Array.new(100) { enumerator.next }.sum == 4_950, "an enumerator") }
if Fiber.respond_to?(:set_scheduler)
  # The least that is one: it waits for what is readable, and for time.
  scheduler = Class.new do
    def initialize
      @readable = {}
      @waiting = {}
      @ready = []
      @blocked = {}
    end

    def run
      until @readable.empty? && @waiting.empty? && @ready.empty?
        ready, @ready = @ready, []
        ready.each(&:resume)
        soon = @waiting.values.min
        limit = @ready.empty? ? soon && [soon - now, 0].max : 0
        found, = IO.select(@readable.keys, nil, nil, limit) unless @readable.empty? && limit.nil?
        (found || []).each { |io| @readable.delete(io).resume(1) }
        due = @waiting.select { |_, at| at <= now }.keys
        due.each { |fiber| @waiting.delete(fiber); fiber.resume }
      end
    end
    alias_method :close, :run

    def io_wait(io, _events, _timeout)
      @readable[io] = Fiber.current
      Fiber.yield
    end

    def kernel_sleep(length = 0)
      @waiting[Fiber.current] = now + length
      Fiber.yield
    end

    def block(_blocker, _timeout = nil)
      Fiber.yield
    end

    def unblock(_blocker, fiber)
      @ready << fiber
    end

    def fiber(&block)
      Fiber.new(blocking: false, &block).tap(&:resume)
    end
  end
  seen = []
  reader, writer = IO.pipe
  served = Thread.new do
    Fiber.set_scheduler(scheduler.new)
    Fiber.schedule { seen << reader.readpartial(1) }
    Fiber.schedule { sleep 0.02; seen << :slept; writer.write("x") }
    Fiber.schedule { seen << :first }
  end
  computing(1) { served.join }
  check(seen == [:first, :slept, "x"], "scheduled: #{seen}")
end
finish
