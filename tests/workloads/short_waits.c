/* Ten threads that wait 30 times for 20 us and then once for 20 ms, as the threads of a server do: mixed > descend > ... > short_wait
 * or long_wait. Arguments: seconds. */
#include <pthread.h>
#include <sys/prctl.h>

#include "lifetime.h"

enum { THREADS = 10, SHORT_WAITS = 30, DEPTH = 40 };

static volatile unsigned long sink;

static void nap(long microseconds) {
    struct timespec time = {.tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
    sink++;
}

__attribute__((noinline)) static void short_wait(void) {
    nap(20);
    sink++;
}

__attribute__((noinline)) static void long_wait(void) {
    nap(20000);
    sink++;
}

__attribute__((noinline)) static void descend(int frames, void (*wait)(void)) {
    if (frames > 0)
        descend(frames - 1, wait);
    else
        wait();
    sink++;
}

static void *mixed(void *argument) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        for (int count = 0; count < SHORT_WAITS; count++)
            descend(DEPTH, short_wait);
        descend(DEPTH, long_wait);
    }
    return argument;
}

int main(int argc, char **argv) {
    for (int count = 0; count < THREADS; count++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, mixed, NULL) != 0 || pthread_setname_np(thread, "mixed") != 0)
            abort();
    }
    ready(argc, argv);
    while (goes_on())
        nap(100000);
    return 0;
}
