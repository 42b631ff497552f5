-- Prints what wrk measured as one line of JSON, in the units that the names end in.
function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '\n{"requests": %d, "elapsed_s": %.6f, "p50_ns": %d, "p90_ns": %d, "p99_ns": %d, "max_ns": %d, '
            .. '"wrong": %d, "socket_errors": %d}\n',
        summary.requests, summary.duration / 1e6,
        latency:percentile(50) * 1000, latency:percentile(90) * 1000,
        latency:percentile(99) * 1000, latency.max * 1000,
        errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
