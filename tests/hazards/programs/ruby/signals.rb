# Signals while threads compute: each handler runs in the main thread.
require_relative "hazard"
seen = Hash.new(0)
%w[USR1 USR2 WINCH].each { |name| trap(name) { seen[name] += 1 if Thread.current == Thread.main } }
child = fork do
  300.times do |n|
    Process.kill(%w[USR1 USR2 WINCH][n % 3], Process.ppid)
    sleep 0.0005
  end
  exit!(0)
end
computing(2) do
  echo(50)
  Process.wait(child)
  sleep 0.1
end
check(seen.size == 3 && seen.values.all? { |count| count > 5 }, "seen: #{seen}")
# A signal ends a wait of the main thread.
Thread.new { sleep 0.05; Process.kill(:INT, Process.pid) }
begin
  computing(1) { sleep 30 }
  check(false, "Interrupt")
rescue Interrupt
  nil
end
finish
