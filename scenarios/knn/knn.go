// Tells handwritten digits by their nearest neighbours: a task for each image.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
package main

import "math"

const (
	neighbours = 5
	digits     = 10
)

func distance(one, other []int) int {
	sum := 0
	for i, number := range one {
		difference := number - other[i]
		sum += difference * difference
	}
	return sum
}

// The digit that an image is, by all the others.
func classify(query int, images [][]int, labels []int) int {
	// The nearest so far, and one place for what is not among them.
	var near [neighbours + 1]struct{ distance, digit int }
	for i := range near {
		near[i].distance = math.MaxInt
	}
	for i, image := range images {
		if i == query {
			continue
		}
		far, place := distance(images[query], image), neighbours
		// Of equally far ones the first stays before.
		for ; place > 0 && far < near[place-1].distance; place-- {
			near[place] = near[place-1]
		}
		near[place].distance, near[place].digit = far, labels[i]
	}
	var votes [digits]int
	for _, neighbour := range near[:neighbours] {
		votes[neighbour.digit]++
	}
	commonest := 0
	for digit, count := range votes {
		if count > votes[commonest] {
			commonest = digit
		}
	}
	return commonest
}

func main() {
	args := parse(120, 0, 0)
	images, labels := readImages(args)
	measure(args, args.work, func(p *pool) float64 {
		told := make([]int, args.work)
		p.run(args.work, func(i int) { told[i] = classify(i%len(images), images, labels) })
		right := 0
		for i, digit := range told {
			if digit == labels[i%len(images)] {
				right++
			}
		}
		return float64(right) / float64(args.work)
	})
}
