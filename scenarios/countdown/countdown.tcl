# Counts down, in one thread or split over several.
#
# Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.
set countdown {
    proc countdown n {
        while {$n > 0} {
            incr n -1
        }
    }
}
eval $countdown

array set args {--mode sequential --workers 1 --work 100000000}
array set args $argv
set part [expr {$args(--work) / $args(--workers)}]
if {$args(--mode) eq "thread" && [catch {package require Thread} why]} {
    puts "{\"lacks\": \"$why (Debian: tcl-thread)\"}"
    exit 3
}

set begun [clock microseconds]
if {$args(--mode) eq "sequential"} {
    countdown $args(--work)
} else {
    # Each has an interpreter of its own.
    set threads {}
    for {set i 0} {$i < $args(--workers)} {incr i} {
        lappend threads [thread::create -joinable "$countdown; countdown $part"]
    }
    foreach thread $threads {
        thread::join $thread
    }
}
puts "{\"elapsed_s\": [expr {([clock microseconds] - $begun) / 1e6}]}"
