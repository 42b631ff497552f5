# A thread keeps the lock in C code, which looks for nothing: the others wait, and go on.
require_relative "hazard"
holder = Thread.new { 20.times { (3**200_000).to_s.size } }
longest = echo(20)
holder.join
check(longest < 30, "longest: #{longest}")
# What computes in C, and looks: a search with many steps back, a sort with a block.
sorter = Thread.new { Array.new(100_000) { |n| (n * 7919) % 100_003 }.sort { |a, b| a <=> b }.first }
echo(20)
check(sorter.value == 0, "sorted")
finish
