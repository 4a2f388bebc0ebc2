/* Threads beside one that computes all the time, on at most two CPUs: "napper" sleeps for 7 ms and computes for 3 ms, "owner" computes
 * for 1 ms under a lock and sleeps for 4 ms, "waiter" takes the lock and sleeps for 5 ms. Arguments: seconds. */
#include <pthread.h>
#include <sched.h>

#include "lifetime.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;

static double cpu_milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void compute(double milliseconds) {
    double until = cpu_milliseconds() + milliseconds;
    while (cpu_milliseconds() < until)
        sink += spin(2000);
}

static void nap(long milliseconds) {
    struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

static void *busy(void *argument) {
    for (;;)
        compute(1);
    return argument;
}

static void *napper(void *argument) {
    for (;;) {
        nap(7);
        compute(3);
    }
    return argument;
}

static void *owner(void *argument) {
    for (;;) {
        pthread_mutex_lock(&lock);
        compute(1);
        pthread_mutex_unlock(&lock);
        nap(4);
    }
    return argument;
}

static void *waiter(void *argument) {
    for (;;) {
        pthread_mutex_lock(&lock);
        sink++;
        pthread_mutex_unlock(&lock);
        nap(5);
    }
    return argument;
}

static void start(const char *name, void *(*run)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_setname_np(thread, name) != 0)
        abort();
}

int main(int argc, char **argv) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    CPU_SET(1, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        return 1;
    start("busy", busy);
    start("napper", napper);
    start("owner", owner);
    start("waiter", waiter);
    ready(argc, argv);
    while (goes_on())
        nap(100);
    return 0;
}
