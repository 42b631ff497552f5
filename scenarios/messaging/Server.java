// The messaging server: echoes size-prefixed messages while CPU-bound threads count.
//
// Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this folder
// for what each line means.

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicLongArray;

public class Server {
    /** Counters this far apart share no line of cache. */
    private static final int APART = 8;

    private static void serve(ServerSocket listener) throws IOException {
        while (true) {
            try (Socket conn = listener.accept()) {
                conn.setTcpNoDelay(true);
                DataInputStream in = new DataInputStream(conn.getInputStream());
                OutputStream out = conn.getOutputStream();
                while (true) {
                    int size = in.readInt();
                    byte[] message = in.readNBytes(size);
                    out.write(ByteBuffer.allocate(4).putInt(size).array());
                    out.write(message);
                }
            } catch (EOFException end) {
                // The client has gone: the next one.
            }
        }
    }

    private static void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            args.put(arguments[i], arguments[i + 1]);
        }
        int workers = Integer.parseInt(args.getOrDefault("--workers", "0"));
        ServerSocket listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
        AtomicLongArray counts = new AtomicLongArray((workers + 1) * APART);
        start(() -> {
            try {
                serve(listener);
            } catch (IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        });
        for (int i = 0; i < workers; i++) {
            int place = i * APART;
            start(() -> {
                for (long n = 1; ; n++) {
                    counts.setOpaque(place, n);
                }
            });
        }
        System.out.printf("{\"port\": %d}%n", listener.getLocalPort());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            double at = System.nanoTime() / 1e9;
            StringJoiner now = new StringJoiner(", ");
            for (int i = 0; i < workers; i++) {
                now.add(Long.toString(counts.get(i * APART)));
            }
            System.out.printf(Locale.ROOT, "{\"at\": %.9f, \"counts\": [%s]}%n", at, now);
        }
    }
}
