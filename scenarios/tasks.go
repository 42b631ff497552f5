// What fib, kmeans, knn and trees share in Go: arguments, modes, what is measured. See TASKS.md.
package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const pixels = 64

// So many tasks may wait, before who makes them waits for who does them.
const waiting = 1024

// A mode that there is not: so the program ends, after a line that says why.
const lacks = 3

type arguments struct {
	mode, data                string
	workers, work, size, heap int
}

// A pool is goroutines that wait for tasks, or none at all.
type pool struct {
	tasks chan task
	// Both of the goroutines and of the tasks that have not ended.
	workers, unfinished sync.WaitGroup
}

type task struct {
	call   func(number int)
	number int
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func parse(work, size, heap int) arguments {
	given := map[string]string{}
	for i := 1; i+1 < len(os.Args); i += 2 {
		given[os.Args[i]] = os.Args[i+1]
	}
	text := func(name, otherwise string) string {
		if value, is := given[name]; is {
			return value
		}
		return otherwise
	}
	number := func(name string, otherwise int) int {
		value, err := strconv.Atoi(text(name, strconv.Itoa(otherwise)))
		check(err)
		return value
	}
	mode := text("--mode", "sequential")
	if mode != "sequential" && mode != "thread" {
		fmt.Println(`{"lacks": "Go has goroutines, in mode thread"}`)
		os.Exit(lacks)
	}
	return arguments{
		mode: mode, data: text("--data", "digits.csv"), workers: number("--workers", 1),
		work: number("--work", work), size: number("--size", size), heap: number("--heap", heap),
	}
}

func newPool(args arguments) *pool {
	p := &pool{}
	if args.mode == "thread" {
		p.tasks = make(chan task, waiting)
		p.workers.Add(args.workers)
		for i := 0; i < args.workers; i++ {
			go p.work()
		}
	}
	p.run(args.workers, func(int) {})
	return p
}

func (p *pool) work() {
	defer p.workers.Done()
	for one := range p.tasks {
		one.call(one.number)
		p.unfinished.Done()
	}
}

// Calls it with each number below `calls`, and returns when all calls have.
func (p *pool) run(calls int, call func(number int)) {
	if p.tasks == nil {
		for i := 0; i < calls; i++ {
			call(i)
		}
		return
	}
	p.unfinished.Add(calls)
	for i := 0; i < calls; i++ {
		p.tasks <- task{call, i}
	}
	p.unfinished.Wait()
}

func (p *pool) close() {
	if p.tasks != nil {
		close(p.tasks)
		p.workers.Wait()
	}
}

// The images of handwritten digits, and which digit each is.
func readImages(args arguments) ([][]int, []int) {
	file, err := os.Open(args.data)
	check(err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	check(err)
	var images [][]int
	var labels []int
	for _, row := range rows {
		numbers := make([]int, len(row))
		for i, text := range row {
			numbers[i], err = strconv.Atoi(text)
			check(err)
		}
		images = append(images, numbers[:pixels])
		labels = append(labels, numbers[pixels])
	}
	return images, labels
}

func cpuSeconds() float64 {
	var sum int64
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		check(syscall.Getrusage(who, &used))
		sum += used.Utime.Nano() + used.Stime.Nano()
	}
	return float64(sum) / 1e9
}

// Only while it stops the program: for the most part it works beside it.
func collectorPauses() time.Duration {
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	return stats.PauseTotal
}

// Runs body, which makes so many calls and returns the result, and prints one line about it.
func measure(args arguments, calls int, body func(p *pool) float64) {
	cpuBefore := cpuSeconds()
	p := newPool(args)
	pausesBefore := collectorPauses()
	begun := time.Now()
	result := body(p)
	elapsed := time.Since(begun)
	pauses := collectorPauses() - pausesBefore
	p.close()
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"elapsed_s": elapsed.Seconds(),
		"calls":     float64(calls),
		"cpu_s":     cpuSeconds() - cpuBefore,
		"gc_s":      pauses.Seconds(),
		"result":    result,
	}))
}
