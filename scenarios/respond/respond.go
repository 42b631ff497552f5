// Thousands of requests that overlap, each in a goroutine, or in a thread of its own.
//
// Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

const response = 512

var (
	formatter sync.Mutex
	start     = time.Now()
)

func respond(output *os.File, id int, begun, wait time.Duration, isThread bool) {
	if isThread {
		// Asleep in the thread, not in the runtime, which would give the thread to others.
		runtime.LockOSThread()
		left := syscall.NsecToTimespec(int64(wait))
		for syscall.Nanosleep(&left, &left) == syscall.EINTR {
		}
	} else {
		time.Sleep(wait)
	}
	formatter.Lock()
	now := time.Now().Format("2006-01-02 15:04:05")
	formatter.Unlock()
	head := fmt.Sprintf(`<response id="%d" begun_ns="%d" ended_ns="%d"><time>%s</time><body>`,
		id, begun.Nanoseconds(), time.Since(start).Nanoseconds(), now)
	tail := "</body></response>\n"
	text := head + strings.Repeat(".", response-len(head)-len(tail)) + tail
	if n, err := output.WriteString(text); n != response {
		panic(err)
	}
}

func main() {
	mode := flag.String("mode", "green", "green or thread")
	workers := flag.Int("workers", 100, "requests that overlap")
	wait := flag.Float64("wait", 1, "seconds")
	file := flag.String("output", os.DevNull, "the responses are appended to it")
	flag.Parse()
	if *mode != "green" && *mode != "thread" {
		fmt.Println(`{"lacks": "Go has goroutines and threads"}`)
		os.Exit(3)
	}
	output, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	// By itself it ends a program that has more than 10,000.
	debug.SetMaxThreads(*workers + 1000)

	begun := time.Now()
	var all sync.WaitGroup
	for i := 0; i < *workers; i++ {
		all.Add(1)
		go func(id int, begun time.Duration) {
			defer all.Done()
			respond(output, id, begun, time.Duration(*wait*1e9), *mode == "thread")
		}(i, time.Since(start))
	}
	all.Wait()
	json.NewEncoder(os.Stdout).Encode(map[string]float64{"elapsed_s": time.Since(begun).Seconds()})
}
