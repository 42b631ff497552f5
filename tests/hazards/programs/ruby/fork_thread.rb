# Forks from threads, several at a time.
require_relative "hazard"
computing(1) do
  statuses = Array.new(8) do |number|
    Thread.new do
      child = fork do
        computing(1) { echo(3) }
        exit!(number)
      end
      Process.wait2(child)[1].exitstatus
    end
  end.map(&:value)
  check(statuses == (0...8).to_a, "statuses: #{statuses}")
end
finish
