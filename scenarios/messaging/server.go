// The messaging server: echoes size-prefixed messages while CPU-bound goroutines count.
//
// Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this folder
// for what each line means.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// A line of cache each: the counters share nothing.
type count struct {
	n atomic.Int64
	_ [56]byte
}

func echo(conn net.Conn) error {
	defer conn.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		message := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(conn, message); err != nil {
			return err
		}
		if _, err := conn.Write(head[:]); err != nil {
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
}

func main() {
	mode := flag.String("mode", "green", "thread: a thread of its own for each goroutine")
	workers := flag.Int("workers", 0, "CPU-bound goroutines")
	flag.Parse()
	start := func(run func()) {
		go func() {
			if *mode == "thread" {
				runtime.LockOSThread()
			}
			run()
		}()
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	start(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			echo(conn)
		}
	})
	counts := make([]count, *workers)
	for i := range counts {
		mine := &counts[i].n
		start(func() {
			for n := int64(1); ; n++ {
				mine.Store(n)
			}
		})
	}

	out := json.NewEncoder(os.Stdout)
	out.Encode(map[string]int{"port": listener.Addr().(*net.TCPAddr).Port})
	begun := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := []int64{}
		for i := range counts {
			now = append(now, counts[i].n.Load())
		}
		out.Encode(map[string]any{"at": time.Since(begun).Seconds(), "counts": now})
	}
}
