# A child ends as programs do: at_exit runs, threads that compute or wait are ended.
require_relative "hazard"
reader, writer = IO.pipe
child = fork do
  reader.close
  at_exit { writer.write("ended") }
  2.times { Thread.new { loop { 1 + 1 } } }
  2.times { Thread.new { sleep } }
  echo(10)
  exit(7)
end
writer.close
check(Process.wait2(child)[1].exitstatus == 7, "its status")
check(reader.read == "ended", "at_exit")
finish
