/* One thread for each way to wait, and one that computes; each has the name of what it does.
 *
 * sleeper: nanosleep. reader: read of an empty pipe. locker: a mutex that main holds. poller: poll without a time limit.
 * spinner: never waits. deep: read at the end of 300 calls of 200 bytes each. main: poll, in goes_on. */
#include <pthread.h>
#include <sys/prctl.h>

#include "lifetime.h"

static int empty_pipe[2];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;

static void read_nothing(void) {
    char byte;
    while (read(empty_pipe[0], &byte, 1) != 0)
        ;
}

static void *sleeper(void *unused) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 100000000};
    while (nanosleep(&pause, NULL) == 0)
        ;
    return unused;
}

static void *reader(void *unused) {
    read_nothing();
    return unused;
}

static void *locker(void *unused) {
    pthread_mutex_lock(&held);
    return unused;
}

static void *poller(void *unused) {
    struct pollfd input = {.fd = empty_pipe[0], .events = POLLIN};
    while (poll(&input, 1, -1) >= 0)
        ;
    return unused;
}

static void *spinner(void *unused) {
    for (;;)
        sink++;
    return unused;
}

/* More stack than is copied at once. */
__attribute__((noinline)) static unsigned long descend(int levels) {
    volatile char frame[200];
    frame[0] = (char)levels;
    if (levels == 0) {
        read_nothing();
        return 0;
    }
    return descend(levels - 1) + (unsigned long)frame[0];
}

static void *deep(void *unused) {
    sink = descend(300);
    return unused;
}

/* All threads have their names. */
static pthread_barrier_t are_named;

struct named {
    const char *name;
    void *(*function)(void *);
};

static void *run(void *argument) {
    const struct named *thread = argument;
    prctl(PR_SET_NAME, thread->name);
    pthread_barrier_wait(&are_named);
    return thread->function(NULL);
}

int main(int argc, char **argv) {
    static struct named threads[] = {{"sleeper", sleeper}, {"reader", reader},   {"locker", locker},
                                     {"poller", poller},   {"spinner", spinner}, {"deep", deep}};
    const unsigned count = sizeof(threads) / sizeof(threads[0]);
    if (pipe(empty_pipe) != 0 || pthread_barrier_init(&are_named, NULL, count + 1) != 0)
        return 1;
    pthread_mutex_lock(&held);
    pthread_t thread;
    for (unsigned number = 0; number < count; number++)
        if (pthread_create(&thread, NULL, run, &threads[number]) != 0)
            return 1;
    pthread_barrier_wait(&are_named);
    ready(argc, argv);
    while (goes_on())
        usleep(100000);
    return 0;
}
