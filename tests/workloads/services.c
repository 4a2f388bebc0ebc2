/* A service of several processes. Arguments: seconds, mode, processes, threads of each. Prints "ready PID" when all threads do what the
 * mode says:
 *
 * calls, calls_local: each has sent a request to the process `slow_database`, over TCP or a UNIX socket, and waits in PQexec for a response
 * that does not come.
 * serves: each has accepted a connection of the process `quiet_client` and waits in PQexec for a request that does not come.
 * queues: each appends under a lock of its process, which it holds for two milliseconds: append_all > append. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "lifetime.h"

static int listener;
static struct sockaddr_storage address;
static socklen_t length;
/* Each thread writes a byte before it waits. */
static int started[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long sink;

static void *stop(void) {
    _exit(1);
}

static void start(void) {
    if (write(started[1], "", 1) != 1)
        stop();
}

static int connect_to_listener(void) {
    int connection = socket(address.ss_family, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, length) != 0)
        stop();
    return connection;
}

/* Named as the client of a database is. */
__attribute__((noinline)) long PQexec(int connection) {
    char byte;
    long received = recv(connection, &byte, 1, 0);
    sink += received;
    return received;
}

static void *calls(void *unused) {
    int connection = connect_to_listener();
    start();
    PQexec(connection);
    return unused;
}

static void *serves(void *unused) {
    int connection = accept(listener, NULL, NULL);
    start();
    PQexec(connection);
    return unused;
}

__attribute__((noinline)) static int append(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 2000000};
    pthread_mutex_lock(&lock);
    int outcome = nanosleep(&pause, NULL);
    pthread_mutex_unlock(&lock);
    return outcome;
}

static void *append_all(void *unused) {
    start();
    while (append() == 0)
        ;
    return unused;
}

/* Starts a process that ends with this one. */
static void begin(const char *name, void *(*function)(void *), int threads) {
    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, name);
    pthread_t thread;
    for (int index = 1; index < threads; index++)
        pthread_create(&thread, NULL, function, NULL);
    function(NULL);
    for (;;)
        pause();
}

static void *accept_all(void *unused) {
    while (accept(listener, NULL, NULL) >= 0)
        ;
    return unused;
}

static int connections;

static void *connect_all(void *unused) {
    for (int index = 0; index < connections; index++)
        connect_to_listener();
    return unused;
}

static void *(*function_of(const char *mode))(void *) {
    if (strncmp(mode, "calls", 5) == 0)
        return calls;
    if (strcmp(mode, "serves") == 0)
        return serves;
    return append_all;
}

/* At a port that the kernel chooses, or at an abstract name. */
static void listen_anywhere(const char *mode) {
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int is_local = strcmp(mode, "calls_local") == 0;
    memcpy(&address, &loopback, sizeof(loopback));
    address.ss_family = is_local ? AF_UNIX : AF_INET;
    length = is_local ? sizeof(address.ss_family) : sizeof(loopback);
    listener = socket(address.ss_family, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 128) != 0)
        stop();
    length = sizeof(address);
    getsockname(listener, (struct sockaddr *)&address, &length);
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "calls";
    int processes = argc > 3 ? atoi(argv[3]) : 4;
    int threads = argc > 4 ? atoi(argv[4]) : 1;
    char byte;
    connections = processes * threads;
    listen_anywhere(mode);
    if (pipe(started) != 0)
        stop();
    if (function_of(mode) == calls) {
        begin("slow_database", accept_all, 1);
        close(listener);
    }
    if (strcmp(mode, "serves") == 0)
        begin("quiet_client", connect_all, 1);
    for (int index = 0; index < processes; index++)
        begin("shop", function_of(mode), threads);
    for (int index = 0; index < connections; index++)
        if (read(started[0], &byte, 1) != 1)
            stop();
    ready(argc, argv);
    while (goes_on())
        usleep(10000);
    return 0;
}
