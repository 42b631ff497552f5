# The messaging server: echoes size-prefixed messages while CPU-bound threads count.
#
# Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this folder
# for what each line means.
array set args {--mode thread --workers 0}
array set args $argv
if {$args(--mode) ne "thread"} {
    puts {{"lacks": "only threads"}}
    exit 3
}
if {[catch {package require Thread} why]} {
    puts "{\"lacks\": \"$why (Debian: tcl-thread)\"}"
    exit 3
}

# Each thread has an interpreter of its own. The server's says which port it has.
set server {
    proc serve {conn address port} {
        # As large as it gets: a message that is sent in parts waits for the client's acknowledgement.
        fconfigure $conn -translation binary -buffering full -buffersize 1000000
        while {[string length [set head [read $conn 4]]] == 4} {
            binary scan $head I size
            set message [read $conn $size]
            puts -nonewline $conn $head
            puts -nonewline $conn $message
            flush $conn
        }
        close $conn
    }
    set listener [socket -server serve -myaddr 127.0.0.1 0]
    tsv::set server port [lindex [fconfigure $listener -sockname] 2]
    thread::wait
}

# A thread shares its count now and then: what is shared is behind a mutex.
set spin {
    proc spin place {
        set n 0
        while 1 {
            incr n
            if {$n % 1000 == 0} {
                tsv::set counts $place $n
            }
        }
    }
}

fconfigure stdout -buffering line
thread::create $server
for {set place 0} {$place < $args(--workers)} {incr place} {
    tsv::set counts $place 0
    thread::create "$spin; spin $place"
}
while {![tsv::exists server port]} {
    after 1
}
puts "{\"port\": [tsv::get server port]}"
while {[gets stdin line] >= 0} {
    set counts {}
    for {set place 0} {$place < $args(--workers)} {incr place} {
        lappend counts [tsv::get counts $place]
    }
    puts "{\"at\": [expr {[clock microseconds] / 1e6}], \"counts\": \[[join $counts ", "]\]}"
}
exit
