// Groups images of handwritten digits by k-means: in each round, a task for each part of them.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
package main

const (
	groups = 10
	parts  = 16
)

// Of some images: for each group the sum and the number of those nearest to its centre; and the sum
// of their squared distances.
type part struct {
	sums    [groups][pixels]int
	counts  [groups]int
	inertia float64
}

type centre [pixels]float64

func distance(image []int, other *centre) float64 {
	sum := 0.0
	for i, number := range image {
		difference := float64(number) - other[i]
		sum += difference * difference
	}
	return sum
}

func assign(images [][]int, centres *[groups]centre) part {
	var found part
	for _, image := range images {
		group, nearest := 0, distance(image, &centres[0])
		for other := 1; other < groups; other++ {
			if far := distance(image, &centres[other]); far < nearest {
				group, nearest = other, far
			}
		}
		sum := &found.sums[group]
		for i, number := range image {
			sum[i] += number
		}
		found.counts[group]++
		found.inertia += nearest
	}
	return found
}

func (c *centre) move(group int, found *[parts]part) {
	count := 0
	var sum [pixels]int
	for i := range found {
		count += found[i].counts[group]
		for at, number := range found[i].sums[group] {
			sum[at] += number
		}
	}
	if count > 0 {
		for at, number := range sum {
			c[at] = float64(number) / float64(count)
		}
	}
}

func main() {
	args := parse(10, 0, 0)
	images, _ := readImages(args)
	measure(args, args.work*parts, func(p *pool) float64 {
		var centres [groups]centre
		for group := range centres {
			for i, number := range images[group] {
				centres[group][i] = float64(number)
			}
		}
		inertia := 0.0
		for round := 0; round < args.work; round++ {
			var found [parts]part
			p.run(parts, func(i int) {
				begin, end := len(images)*i/parts, len(images)*(i+1)/parts
				found[i] = assign(images[begin:end], &centres)
			})
			inertia = 0
			for i := range found {
				inertia += found[i].inertia
			}
			for group := range centres {
				centres[group].move(group, &found)
			}
		}
		return inertia
	})
}
