/* A server in Java, eight threads of which have sent a request to the process `slow_service` and wait for a response that does not come. It
 * says "ready PID" when all of them have, and ends after args[0] seconds, or when the pipe on its standard input is closed. To be run from
 * its source: `java Upstream.java 60`. */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

public class Upstream {
    static final int THREADS = 8;

    /* It ends with this process, which has the other end of its standard input. */
    static final String SLOW_SERVICE =
            """
            import socket, sys
            with open("/proc/self/comm", "w") as comm:
                comm.write("slow_service")
            listener = socket.create_server(("127.0.0.1", 0))
            print(listener.getsockname()[1], flush=True)
            connections = [listener.accept()[0] for _ in range(int(sys.argv[1]))]
            for connection in connections:
                connection.recv(1000)
            print("all", flush=True)
            sys.stdin.read()
            """;

    static void ask(int port) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes());
            socket.getInputStream().read();
        } catch (IOException end) {
            System.exit(1);
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
        ProcessBuilder builder = new ProcessBuilder("python3", "-c", SLOW_SERVICE, Integer.toString(THREADS));
        Process service = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader output = new BufferedReader(new InputStreamReader(service.getInputStream()));
        int port = Integer.parseInt(output.readLine());
        ServerSocket listener = new ServerSocket(0);
        List<Socket> clients = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            /* The client of the request. */
            clients.add(new Socket(InetAddress.getLoopbackAddress(), listener.getLocalPort()));
            clients.add(listener.accept());
            start(() -> ask(port));
        }
        output.readLine();
        start(() -> endAfter(Long.parseLong(args[0])));
        System.out.println("ready " + ProcessHandle.current().pid());
        while (System.in.read() >= 0) {}
        for (Socket client : clients) client.close();
        listener.close();
        System.exit(0);
    }
}
