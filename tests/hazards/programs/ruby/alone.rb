# One thread, which blocks and computes: nothing to serve.
require_relative "hazard"
reader, writer = IO.pipe
2_000.times do
  writer.write("x")
  reader.readpartial(1)
end
sleep 0.001
check(`echo x` == "x\n", "a program")
finish
