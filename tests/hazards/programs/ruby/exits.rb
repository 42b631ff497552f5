# The program ends while threads compute, wait for the lock, and wait for other things.
require_relative "hazard"
[%w[exit 0], %w[exit! 3], ["raise 'x'", 1], ["abort", 1], ["Process.kill(:TERM, $$); sleep", nil]].each do |how, status|
  code = "2.times { Thread.new { loop { 1 + 1 } } }; Thread.new { sleep }; " \
         "r, w = IO.pipe; Thread.new { r.read }; Thread.new { loop { w.write('x') } }; sleep 0.05; "
  code += how == "exit" ? "exit" : (how == "exit!" ? "exit!(3)" : how)
  ended = Process.wait2(Process.spawn(RUBY, *ARGV, "-e", code, err: File::NULL))[1]
  check(ended.exitstatus == status&.to_i, "#{how}: #{ended}")
end
finish
