// Thousands of requests that overlap, each in a goroutine, or in a thread of its own.
//
// Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
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

func respond(output io.Writer, id int, begun, wait time.Duration, isThread bool) {
	if isThread {
		// Asleep in the thread, not in the runtime, which would give the thread to others.
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
	if n, err := io.WriteString(output, text); n != response {
		log.Fatal(err)
	}
}

// The second form: a request of a client's. In mode thread, too, the runtime waits for what it
// sends.
func serve(conn net.Conn, wait time.Duration, isThread bool) {
	defer conn.Close()
	if _, err := io.WriteString(conn, "ready\n"); err != nil {
		log.Fatal(err)
	}
	line, err := bufio.NewReaderSize(conn, 32).ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	begun := time.Since(start)
	var id int
	if _, err := fmt.Sscanf(line, "respond %d\n", &id); err != nil {
		log.Fatal(err)
	}
	respond(conn, id, begun, wait, isThread)
}

func main() {
	mode := flag.String("mode", "green", "green or thread")
	workers := flag.Int("workers", 100, "requests that overlap")
	wait := flag.Float64("wait", 1, "seconds")
	file := flag.String("output", os.DevNull, "the responses are appended to it")
	sockets := flag.Int("sockets", 0, "1: requests of a client's, over sockets")
	flag.Parse()
	if *mode != "green" && *mode != "thread" {
		fmt.Println(`{"lacks": "Go has goroutines and threads"}`)
		os.Exit(3)
	}
	output, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	var listener net.Listener
	if *sockets == 1 {
		// Its queue is as long as the kernel allows.
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("{\"port\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	}
	// By itself it ends a program that has more than 10,000.
	debug.SetMaxThreads(*workers + 1000)
	isThread, waits := *mode == "thread", time.Duration(*wait*1e9)

	begun := time.Now()
	var all sync.WaitGroup
	for i := 0; i < *workers; i++ {
		all.Add(1)
		var conn net.Conn
		if listener != nil {
			if conn, err = listener.Accept(); err != nil {
				log.Fatal(err)
			}
			if i == 0 {
				begun = time.Now()
			}
		}
		go func(id int, since time.Duration) {
			defer all.Done()
			if isThread {
				runtime.LockOSThread()
			}
			if conn != nil {
				serve(conn, waits, isThread)
			} else {
				respond(output, id, since, waits, isThread)
			}
		}(i, time.Since(start))
	}
	all.Wait()
	elapsed := time.Since(begun)
	// What the program stood still for it; most of it is done beside the program.
	var collected debug.GCStats
	debug.ReadGCStats(&collected)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"elapsed_s": elapsed.Seconds(),
		"gc_s":      collected.PauseTotal.Seconds(),
	})
}
