# Thousands of threads that live for a moment: native threads are used again.
require_relative "hazard"
computing(1) do
  total = 0
  300.times { total += Array.new(10) { |n| Thread.new { n } }.sum(&:value) }
  check(total == 300 * 45, "their values")
end
finish
