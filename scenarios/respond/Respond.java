// Thousands of requests that overlap, each in a thread of its own.
//
// Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

public class Respond {
    private static final int RESPONSE = 512;

    /** Not to be used by two threads at a time. */
    private static final SimpleDateFormat FORMATTER = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss");

    private static void respond(FileOutputStream output, int id, long begun, long waitMs) {
        try {
            Thread.sleep(waitMs);
            String time;
            synchronized (FORMATTER) {
                time = FORMATTER.format(new Date());
            }
            String head = String.format(
                    "<response id=\"%d\" begun_ns=\"%d\" ended_ns=\"%d\"><time>%s</time><body>",
                    id, begun, System.nanoTime(), time);
            String tail = "</body></response>\n";
            String text = head + ".".repeat(RESPONSE - head.length() - tail.length()) + tail;
            output.write(text.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i], arguments[i + 1]);
        }
        if (!args.getOrDefault("--mode", "thread").equals("thread")) {
            System.out.println("{\"lacks\": \"Java has threads\"}");
            System.exit(3);
        }
        int workers = Integer.parseInt(args.getOrDefault("--workers", "100"));
        long waitMs = Math.round(Double.parseDouble(args.getOrDefault("--wait", "1")) * 1000);
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        try (FileOutputStream output =
                new FileOutputStream(args.getOrDefault("--output", "/dev/null"), true)) {
            long begun = System.nanoTime();
            Thread[] threads = new Thread[workers];
            for (int i = 0; i < workers; i++) {
                int id = i;
                long since = System.nanoTime();
                threads[i] = new Thread(() -> respond(output, id, since, waitMs));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            double elapsed = (System.nanoTime() - begun) / 1e9;
            System.out.printf(Locale.ROOT, "{\"elapsed_s\": %.9f}%n", elapsed);
        }
    }
}
