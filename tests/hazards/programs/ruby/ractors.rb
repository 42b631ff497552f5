# Each Ractor has a lock of its own. Without threads inside: those of 3.3 lose wake-ups, by themselves.
require_relative "hazard"
unless defined?(Ractor)
  puts "skipped: no Ractor before 3.0"
  exit
end
$VERBOSE = nil
computing(1) { echo(20) }
ractors = Array.new(3) { Ractor.new { 100_000.times.sum.positive? } }
computing(1) { echo(5) }
values = ractors.map { |one| one.respond_to?(:value) ? one.value : one.take }
check(values == [true] * 3, "values")
echo(20)
finish
