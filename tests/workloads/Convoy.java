/* Twenty threads of Java that append under one monitor, which each holds for two milliseconds. It says "ready PID" and ends after args[0]
 * seconds, or when the pipe on its standard input is closed. To be run from its source: `java Convoy.java 60`. */
import java.io.IOException;

public class Convoy {
    static final Object LOCK = new Object();
    static long appended;

    static void append() throws InterruptedException {
        synchronized (LOCK) {
            Thread.sleep(2);
            appended++;
        }
    }

    static void appendAll() {
        try {
            while (true) append();
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    static void start(Runnable run) {
        Thread thread = new Thread(run);
        thread.setDaemon(true);
        thread.start();
    }

    static void endAfter(long seconds) {
        try {
            Thread.sleep(seconds * 1000);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
        System.exit(0);
    }

    public static void main(String[] args) throws IOException {
        for (int thread = 0; thread < 20; thread++) start(Convoy::appendAll);
        start(() -> endAfter(Long.parseLong(args[0])));
        System.out.println("ready " + ProcessHandle.current().pid());
        while (System.in.read() >= 0) {}
    }
}
