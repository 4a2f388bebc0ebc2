/* Threads that sleep and compute in turns, as servers with timers do: main > thread_main > compute.
 *
 * Arguments: seconds, threads, microseconds of sleep, loop steps of computing, nanoseconds of timer slack (0 leaves the
 * kernel's 50 us). */
#include <pthread.h>
#include <sys/prctl.h>

#include "lifetime.h"

static unsigned long sleep_us, steps, slack_ns;

static unsigned long compute(void) { return spin(steps); }

static void *thread_main(void *unused) {
    struct timespec pause = {.tv_sec = sleep_us / 1000000, .tv_nsec = sleep_us % 1000000 * 1000};
    if (slack_ns != 0)
        prctl(PR_SET_TIMERSLACK, slack_ns);
    unsigned long sink = 0;
    while (goes_on()) {
        nanosleep(&pause, NULL);
        sink += compute();
    }
    (void)unused;
    return (void *)sink;
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 1;
    long threads = atol(argv[2]);
    sleep_us = strtoul(argv[3], NULL, 10);
    steps = strtoul(argv[4], NULL, 10);
    slack_ns = strtoul(argv[5], NULL, 10);
    ready(argc, argv);
    pthread_t last;
    for (long number = 0; number < threads; number++)
        if (pthread_create(&last, NULL, thread_main, NULL) != 0)
            return 1;
    return pthread_join(last, NULL);
}
