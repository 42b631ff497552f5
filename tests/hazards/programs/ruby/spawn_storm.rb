# Programs are started from several threads while others compute.
require_relative "hazard"
computing(1) do
  said = Array.new(6) { |n| Thread.new { Array.new(5) { `echo #{n}`.to_i }.sum } }.map(&:value)
  check(said == [0, 5, 10, 15, 20, 25], "said: #{said}")
  check(system("true") && !system("false"), "system")
  check(IO.popen(["cat"], "r+") { |pipe| pipe.write("x"); pipe.close_write; pipe.read } == "x", "popen")
end
finish
