// Builds trees whose nodes know their parents, counts them and drops them: only the collector can
// take them back. See README.md in this folder.
package main

import "runtime"

type node struct {
	parent, left, right *node
}

func grow(parent *node, depth int) *node {
	one := &node{parent: parent}
	if depth > 0 {
		one.left = grow(one, depth-1)
		one.right = grow(one, depth-1)
	}
	return one
}

func (n *node) count() int {
	if n.left == nil {
		return 1
	}
	return 1 + n.left.count() + n.right.count()
}

func main() {
	args := parse(300, 11, 500000)
	kept := make([][]any, args.heap)
	for number := range kept {
		kept[number] = []any{number}
	}
	measure(args, args.work, func(p *pool) float64 {
		counts := make([]int, args.work)
		p.run(args.work, func(i int) { counts[i] = grow(nil, args.size).count() })
		sum := 0
		for _, count := range counts {
			sum += count
		}
		return float64(sum)
	})
	runtime.KeepAlive(kept)
}
