# Threads that do nothing but let others go first: they keep nobody from computing.
require_relative "hazard"
def work
  n = 0
  2_000_000.times { n += 1 }
  n
end

[1, 3, 20].each do |count|
  passing = Array.new(count) { Thread.new { loop { Thread.pass } } }
  check(work == 2_000_000, "work")
  passing.each(&:kill).each(&:join)
end
# As Ruby's own tests have it: the program ends while they run.
100.times { Thread.new { loop { Thread.pass } } }
finish
