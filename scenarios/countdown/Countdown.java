// Counts down, in one thread or split over several.
//
// Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

public class Countdown {
    /** Opaque accesses: the compiler may not count for us, and the processor is not held up. */
    private static void countdown(long work) {
        AtomicLong n = new AtomicLong(work);
        while (n.getOpaque() > 0) {
            n.setOpaque(n.getOpaque() - 1);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i], arguments[i + 1]);
        }
        long work = Long.parseLong(args.getOrDefault("--work", "100000000"));
        int workers = Integer.parseInt(args.getOrDefault("--workers", "1"));

        long begun = System.nanoTime();
        if (args.getOrDefault("--mode", "sequential").equals("sequential")) {
            countdown(work);
        } else {
            Thread[] threads = new Thread[workers];
            for (int i = 0; i < workers; i++) {
                threads[i] = new Thread(() -> countdown(work / workers));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        double elapsed = (System.nanoTime() - begun) / 1e9;
        long collectedMs = 0;
        for (GarbageCollectorMXBean one : ManagementFactory.getGarbageCollectorMXBeans()) {
            collectedMs += one.getCollectionTime();
        }
        System.out.printf(
                Locale.ROOT, "{\"elapsed_s\": %.9f, \"gc_s\": %.3f}%n", elapsed, collectedMs / 1e3);
    }
}
