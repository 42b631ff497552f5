// Thousands of requests that overlap, each in a thread of its own.
//
// Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.

import java.io.EOFException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
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

    /** In bytes. Address space is what thousands of threads run out of. */
    private static final long STACK = 256 * 1024;

    private static void respond(OutputStream output, int id, long begun, long waitMs) {
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

    /** The second form: a request of a client's. */
    private static void serve(Socket conn, long waitMs) {
        try (conn) {
            conn.getOutputStream().write("ready\n".getBytes(StandardCharsets.US_ASCII));
            byte[] line = new byte[32];
            int length = 0;
            while (length == 0 || line[length - 1] != '\n') {
                int more = conn.getInputStream().read(line, length, line.length - length);
                if (more <= 0) {
                    throw new EOFException("the client has gone");
                }
                length += more;
            }
            long begun = System.nanoTime();
            String asked = new String(line, 0, length, StandardCharsets.US_ASCII).trim();
            int id = Integer.parseInt(asked.substring("respond ".length()));
            respond(conn.getOutputStream(), id, begun, waitMs);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Thread start(Runnable request) {
        Thread thread = new Thread(null, request, "request", STACK);
        thread.start();
        return thread;
    }

    private static double secondsUntilAllHaveEnded(Thread[] threads, long begun)
            throws InterruptedException {
        for (Thread thread : threads) {
            thread.join();
        }
        return (System.nanoTime() - begun) / 1e9;
    }

    private static double toFile(int workers, long waitMs, String file)
            throws IOException, InterruptedException {
        try (FileOutputStream output = new FileOutputStream(file, true)) {
            long begun = System.nanoTime();
            Thread[] threads = new Thread[workers];
            for (int i = 0; i < workers; i++) {
                int id = i;
                long since = System.nanoTime();
                threads[i] = start(() -> respond(output, id, since, waitMs));
            }
            return secondsUntilAllHaveEnded(threads, begun);
        }
    }

    private static double overSockets(int workers, long waitMs)
            throws IOException, InterruptedException {
        // The kernel makes of the length of its queue the most that it has.
        try (ServerSocket listener =
                new ServerSocket(0, Integer.MAX_VALUE, InetAddress.getLoopbackAddress())) {
            System.out.printf("{\"port\": %d}%n", listener.getLocalPort());
            long begun = 0;
            Thread[] threads = new Thread[workers];
            for (int i = 0; i < workers; i++) {
                Socket conn = listener.accept();
                if (i == 0) {
                    begun = System.nanoTime();
                }
                threads[i] = start(() -> serve(conn, waitMs));
            }
            return secondsUntilAllHaveEnded(threads, begun);
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
        double elapsed = args.getOrDefault("--sockets", "0").equals("1")
                ? overSockets(workers, waitMs)
                : toFile(workers, waitMs, args.getOrDefault("--output", "/dev/null"));
        long collectedMs = 0;
        for (GarbageCollectorMXBean one : ManagementFactory.getGarbageCollectorMXBeans()) {
            collectedMs += one.getCollectionTime();
        }
        System.out.printf(
                Locale.ROOT, "{\"elapsed_s\": %.9f, \"gc_s\": %.3f}%n", elapsed, collectedMs / 1e3);
    }
}
