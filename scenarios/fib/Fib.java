// Computes a Fibonacci number again and again, each time as a task of its own.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

public class Fib {
    private static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    public static void main(String[] arguments) throws Exception {
        Tasks tasks = new Tasks(arguments, 20000, 16, 0);
        tasks.measure(tasks.work, () -> {
            double sum = 0;
            for (int number : tasks.map(tasks.work, i -> fib(tasks.size))) {
                sum += number;
            }
            return sum;
        });
    }
}
