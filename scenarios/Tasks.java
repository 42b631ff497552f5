// What fib, kmeans, knn and trees share in Java: arguments, modes, what is measured. See TASKS.md.

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

final class Tasks {
    static final int PIXELS = 64;

    /** A mode that there is not: so the program ends, after a line that says why. */
    private static final int LACKS = 3;

    final int work;
    final int size;
    final int heap;
    private final String mode;
    private final int workers;
    private final Path data;

    /** None: tasks run one after the other. */
    private ExecutorService pool;

    /** The numbers are what holds where the arguments do not say it. */
    Tasks(String[] arguments, int work, int size, int heap) {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i], arguments[i + 1]);
        }
        mode = args.getOrDefault("--mode", "sequential");
        workers = number(args, "--workers", 1);
        data = Path.of(args.getOrDefault("--data", "digits.csv"));
        this.work = number(args, "--work", work);
        this.size = number(args, "--size", size);
        this.heap = number(args, "--heap", heap);
        if (!mode.equals("sequential") && !mode.equals("thread")) {
            System.out.println("{\"lacks\": \"Java has threads\"}");
            System.exit(LACKS);
        }
    }

    private static int number(Map<String, String> args, String name, int otherwise) {
        return args.containsKey(name) ? Integer.parseInt(args.get(name)) : otherwise;
    }

    /** The images of handwritten digits: of each the pixels, and last which digit it is. */
    int[][] readImages() throws IOException {
        return Files.readAllLines(data).stream()
                .map(line -> Arrays.stream(line.split(",")).mapToInt(Integer::parseInt).toArray())
                .toArray(int[][]::new);
    }

    /** What the calls with each number below `calls` return. */
    <T> List<T> map(int calls, IntFunction<T> call)
            throws ExecutionException, InterruptedException {
        List<T> results = new ArrayList<>(calls);
        if (pool == null) {
            for (int i = 0; i < calls; i++) {
                results.add(call.apply(i));
            }
            return results;
        }
        List<Future<T>> futures = new ArrayList<>(calls);
        for (int i = 0; i < calls; i++) {
            int number = i;
            futures.add(pool.submit(() -> call.apply(number)));
        }
        for (Future<T> future : futures) {
            results.add(future.get());
        }
        return results;
    }

    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime() / 1e9;
    }

    private static double collectorSeconds() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
                .mapToLong(GarbageCollectorMXBean::getCollectionTime).sum() / 1e3;
    }

    /** Runs the body, which makes so many calls and returns the result, and prints one line. */
    void measure(int calls, Callable<Double> body) throws Exception {
        double cpuBefore = cpuSeconds();
        if (mode.equals("thread")) {
            pool = Executors.newFixedThreadPool(workers);
        }
        try {
            // A thread is made for each of so many tasks.
            map(workers, number -> number);
            double collectedBefore = collectorSeconds();
            long begun = System.nanoTime();
            double result = body.call();
            double elapsed = (System.nanoTime() - begun) / 1e9;
            double collected = collectorSeconds() - collectedBefore;
            close();
            System.out.printf(
                    Locale.ROOT,
                    "{\"elapsed_s\": %.9f, \"calls\": %d, \"cpu_s\": %.6f, \"gc_s\": %.3f, "
                            + "\"result\": %s}%n",
                    elapsed, calls, cpuSeconds() - cpuBefore, collected, result);
        } finally {
            close();
        }
    }

    private void close() throws InterruptedException {
        if (pool != null) {
            pool.shutdown();
            pool.awaitTermination(1, TimeUnit.DAYS);
        }
    }
}
