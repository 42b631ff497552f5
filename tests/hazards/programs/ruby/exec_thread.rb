# A thread that is not the first replaces the program.
require_relative "hazard"
child = fork do
  2.times { Thread.new { loop { 1 + 1 } } }
  Thread.new { exec(RUBY, *ARGV, "-e", "exit Array.new(4) { |n| Thread.new { n } }.sum(&:value)") }
  sleep
end
check(Process.wait2(child)[1].exitstatus == 6, "what came instead")
finish
