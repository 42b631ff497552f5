// Counts down, in one goroutine or split over several, each with a thread of its own.
//
// Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.
package main

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// In one place, so that it is as fast wherever it is called from.
//
//go:noinline
func countdown(n int) {
	for n > 0 {
		n--
	}
}

func main() {
	mode := flag.String("mode", "sequential", "sequential, thread or green")
	workers := flag.Int("workers", 1, "threads")
	work := flag.Int("work", 100_000_000, "how far to count")
	flag.Parse()

	begun := time.Now()
	if *mode == "sequential" {
		countdown(*work)
	} else {
		var all sync.WaitGroup
		for i := 0; i < *workers; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				if *mode == "thread" {
					runtime.LockOSThread()
				}
				countdown(*work / *workers)
			}()
		}
		all.Wait()
	}
	elapsed := time.Since(begun)
	// What the program stood still for it; most of it is done beside the program.
	var collected debug.GCStats
	debug.ReadGCStats(&collected)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"elapsed_s": elapsed.Seconds(),
		"gc_s":      collected.PauseTotal.Seconds(),
	})
}
