# Forks again and again while other threads compute; each child has threads of its own.
require_relative "hazard"
computing(2) do
  40.times do |round|
    child = fork do
      if round % 4 == 0
        computing(2) { echo(5) }
      else
        check(Array.new(3) { |n| Thread.new { n } }.sum(&:value) == 3, "threads of a child")
      end
      exit!(round % 100)
    end
    check(Process.wait2(child)[1].exitstatus == round % 100, "a child's status")
  end
end
finish
