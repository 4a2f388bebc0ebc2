/* Threads that wait for other processes, for name servers and for each other. Arguments: seconds, mode. Prints "ready PID" when they do
 * what the mode says:
 *
 * converts: four threads handle requests: handle_request > convert > waitpid for a process, named `converter`, that ends after 30 ms.
 * One more thread accepts connections.
 * reads: as converts, but for a pipe to which the process writes at its end.
 * popens: as converts, but for the output of a command, `sleep`, by popen.
 * supervises: as converts, but processes that do not end.
 * steps: four threads meet at a barrier in `step`, and one of them computes in `compute` before, for most of the time.
 * even_steps: as steps, but all of them compute.
 * enqueues: four threads wait for room in a queue, in `enqueue`, as one thread takes an item each 20 ms.
 * dequeues: four threads wait for an item in `dequeue`, as one thread adds one each 20 ms.
 * lookups: four threads call getaddrinfo in `connect_to_store`, in a network namespace whose name server, the process `name_server`,
 * does not answer. Needs root. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lifetime.h"

enum { THREADS = 4, CONVERSION_US = 30000, ITEM_US = 20000, MAX_ITEMS = 2 };

static const char *mode = "converts";
static pthread_barrier_t all_arrived;
static atomic_int numbers;
static volatile unsigned long sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER, has_item = PTHREAD_COND_INITIALIZER;
static int items;

static int is(const char *other) {
    return strcmp(mode, other) == 0;
}

static void stop(void) {
    _exit(1);
}

/* A process that ends with this one. The next statement is executed by it. */
static pid_t begin(const char *name) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
    }
    return child;
}

__attribute__((noinline)) static void read_output(void) {
    char line[80];
    FILE *output = popen("exec sleep 0.1", "r");
    if (output == NULL)
        stop();
    while (fgets(line, sizeof(line), output) != NULL)
        sink++;
    pclose(output);
}

__attribute__((noinline)) static void convert(void) {
    int ends[2], status;
    char byte = 0;
    if (is("popens"))
        return read_output();
    if (is("reads") && pipe(ends) != 0)
        stop();
    pid_t child = begin("converter");
    if (child == 0) {
        do
            usleep(CONVERSION_US);
        while (is("supervises"));
        _exit(is("reads") && write(ends[1], &byte, 1) != 1);
    }
    if (is("reads")) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1)
            stop();
        close(ends[0]);
    }
    waitpid(child, &status, 0);
    sink += status;
}

__attribute__((noinline)) static void handle_request(void) {
    convert();
    sink += 1;
}

static void *handle_requests(void *unused) {
    for (;;)
        handle_request();
    return unused;
}

static void *accept_all(void *unused) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(listener, 1) != 0)
        stop();
    while (accept(listener, NULL, NULL) >= 0)
        ;
    return unused;
}

__attribute__((noinline)) static void compute(void) {
    sink += spin(20000000);
}

__attribute__((noinline)) static void step(int computes) {
    if (computes)
        compute();
    pthread_barrier_wait(&all_arrived);
}

static void *make_steps(void *unused) {
    int computes = atomic_fetch_add(&numbers, 1) == 0 || is("even_steps");
    for (;;)
        step(computes);
    return unused;
}

__attribute__((noinline)) static void enqueue(void) {
    pthread_mutex_lock(&lock);
    while (items == MAX_ITEMS)
        pthread_cond_wait(&has_room, &lock);
    items++;
    pthread_cond_signal(&has_item);
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void dequeue(void) {
    pthread_mutex_lock(&lock);
    while (items == 0)
        pthread_cond_wait(&has_item, &lock);
    items--;
    pthread_cond_signal(&has_room);
    pthread_mutex_unlock(&lock);
}

static void *produce(void *pauses) {
    for (;;) {
        enqueue();
        if (pauses != NULL)
            usleep(ITEM_US);
    }
    return NULL;
}

static void *consume(void *pauses) {
    for (;;) {
        dequeue();
        if (pauses != NULL)
            usleep(ITEM_US);
    }
    return NULL;
}

/* Asks for another name each time. */
__attribute__((noinline)) static void connect_to_store(void) {
    struct addrinfo *found;
    char name[32];
    snprintf(name, sizeof(name), "store%d.example.", atomic_fetch_add(&numbers, 1));
    if (getaddrinfo(name, "80", NULL, &found) == 0)
        freeaddrinfo(found);
}

static void *connect_again(void *unused) {
    for (;;)
        connect_to_store();
    return unused;
}

/* A name server of the threads of this process alone, which does not answer. */
static void begin_name_server(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    /* Another file system in place of the files of the machine, which the look-up of a name does not need. */
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/etc", "tmpfs", 0, NULL) != 0)
        stop();
    int file = open("/etc/resolv.conf", O_WRONLY | O_CREAT, 0644), server = socket(AF_INET, SOCK_DGRAM, 0);
    if (dprintf(file, "nameserver 127.0.0.1\n") < 0 || close(file) != 0)
        stop();
    if (ioctl(server, SIOCSIFFLAGS, &loopback) != 0)
        stop();
    if (bind(server, (struct sockaddr *)&address, sizeof(address)) != 0)
        stop();
    if (begin("name_server") == 0)
        for (;;)
            pause();
    close(server);
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *(*run)(void *) = handle_requests;
    if (argc > 2)
        mode = argv[2];
    if (is("lookups")) {
        begin_name_server();
        run = connect_again;
    } else if (is("steps") || is("even_steps")) {
        pthread_barrier_init(&all_arrived, NULL, THREADS);
        run = make_steps;
    } else if (is("enqueues") || is("dequeues")) {
        run = is("enqueues") ? produce : consume;
        if (pthread_create(&thread, NULL, is("enqueues") ? consume : produce, &items) != 0)
            return 1;
    } else if (pthread_create(&thread, NULL, accept_all, NULL) != 0) {
        return 1;
    }
    for (int number = 0; number < THREADS; number++)
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            return 1;
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
