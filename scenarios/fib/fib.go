// Computes a Fibonacci number again and again, each time as a task of its own.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.
package main

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func main() {
	args := parse(20000, 16, 0)
	measure(args, args.work, func(p *pool) float64 {
		numbers := make([]int, args.work)
		p.run(args.work, func(i int) { numbers[i] = fib(args.size) })
		sum := 0
		for _, number := range numbers {
			sum += number
		}
		return float64(sum)
	})
}
