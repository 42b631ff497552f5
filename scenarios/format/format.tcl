# Numbers to text in several threads, by a setting of the whole process: ways to read it.
#
# Source: the benchmark of Porter's "Performance Tuning Tcl" (tcl_precision). See README.md in this
# folder.
if {[catch {package require Thread} why]} {
    puts "{\"lacks\": \"$why (Debian: tcl-thread)\"}"
    exit 3
}

array set args {--design mutex --workers 1 --work 4000000 --mode thread}
array set args $argv

# The conversion of one value, x; variables of all threads are in `tsv`.
array set designs {
    mutex {tsv::lock setting {::format [tsv::get setting text] $x}}
    rwlock {
        thread::rwmutex rlock $lock
        set text [::format [tsv::get setting text] $x]
        thread::rwmutex unlock $lock
        set text
    }
    own {::format $mine $x}
}
if {![info exists designs($args(--design))]} {
    puts "{\"lacks\": \"a thread of Tcl sees a change of another one's variable only under a lock\"}"
    exit 3
}
tsv::set setting text %.12g
# If several threads make it, each may count in one of its own.
tsv::set result characters 0
set lock [thread::rwmutex create]

set program {
    proc convert {begin end lock mine} {
        set characters 0
        for {set i $begin} {$i < $end} {incr i} {
            set x [expr {($i + 1) / 7.0}]
            incr characters [string length [CONVERSION]]
        }
        tsv::incr result characters $characters
    }
    thread::wait
}
set threads {}
for {set i 0} {$i < $args(--workers)} {incr i} {
    lappend threads [thread::create -joinable \
        [string map [list CONVERSION $designs($args(--design))] $program]]
}
set begun [clock microseconds]
set number 0
foreach thread $threads {
    set begin [expr {$args(--work) * $number / $args(--workers)}]
    set end [expr {$args(--work) * [incr number] / $args(--workers)}]
    thread::send -async $thread "convert $begin $end $lock %.12g; thread::release"
}
foreach thread $threads {
    thread::join $thread
}
set elapsed [expr {([clock microseconds] - $begun) / 1e6}]
puts "{\"elapsed_s\": $elapsed, \"result\": [tsv::get result characters]}"
