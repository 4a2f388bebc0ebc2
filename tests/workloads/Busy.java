/* The Java workload: main > run > dive > ... > dive > work, argv[1] calls deep (20 without it), on the main thread, while
 * another one sorts strings. It says "ready PID" when it is and ends after argv[0] seconds, or when the pipe on its
 * standard input is closed. To be run from its source: `java -XX:+PreserveFramePointer Busy.java 60`. */
import java.io.IOException;
import java.util.Arrays;

public class Busy {
    static volatile long sink;
    static long endsAtNs;

    static void work() {
        long state = sink;
        for (int step = 0; step < 100_000; step++) state = state * 6364136223846793005L + 1442695040888963407L;
        sink = state;
    }

    static void dive(int callsLeft) {
        if (callsLeft == 0) work();
        else dive(callsLeft - 1);
        sink++;
    }

    static void run(int depth) {
        while (System.nanoTime() < endsAtNs) dive(depth);
    }

    static void sortStrings() {
        while (System.nanoTime() < endsAtNs) {
            String[] strings = new String[1000];
            for (int at = 0; at < strings.length; at++) strings[at] = "string " + (at * 7919 + sink) % 1000;
            Arrays.sort(strings, (left, right) -> right.compareTo(left));
            sink += strings[0].length();
        }
    }

    static void start(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
    }

    static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException closed) {
            // Treated like the end of the input.
        }
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] arguments) {
        endsAtNs = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        start(Busy::awaitEndOfInput);
        start(Busy::sortStrings);
        System.out.println("ready " + ProcessHandle.current().pid());
        run(arguments.length > 1 ? Integer.parseInt(arguments[1]) : 20);
    }
}
