# A Rack application, some of whose requests compute.
#
#     puma --threads 5:5 rack_app.ru
#
# What the other servers answer (answers.py), and `/compute`, which adds one to a counter, without
# input or output, until somebody asks for `/stop`.
COUNTS = []
STOPPED = []

def compute
  place = COUNTS.size
  COUNTS << 0
  n = 0
  while STOPPED.empty?
    n += 1
    COUNTS[place] = n
  end
  '{"stopped": true}'
end

def counted
  at = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  %({"at_s": #{at}, "count": #{COUNTS.sum}})
end

def answer(path)
  case path
  when "/compute" then compute
  when "/count" then counted
  when "/stop" then STOPPED << true && "{}"
  when %r{\A/items/(\d+)\z}
    number = Regexp.last_match(1).to_i
    %({"item": #{number}, "square": #{number * number}})
  end
end

run(lambda do |env|
  body = answer(env["PATH_INFO"])
  headers = { "content-type" => "application/json", "content-length" => (body || "{}").bytesize.to_s }
  [body ? 200 : 404, headers, [body || "{}"]]
end)
