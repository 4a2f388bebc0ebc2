/* Start and end of every workload: prints "ready PID" and runs until the pipe on standard input is closed, or for
 * argv[1] seconds (default 60), so that a failed test leaves nothing running. */
#pragma once

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double ends_at_seconds;

static inline double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static inline double limit_seconds(int argc, char **argv) {
    return argc > 1 ? atof(argv[1]) : 60;
}

static inline void ready(int argc, char **argv) {
    ends_at_seconds = now_seconds() + limit_seconds(argc, argv);
    printf("ready %d\n", getpid());
    fflush(stdout);
}

/* Needs a system call: use it about once a millisecond. */
static inline int goes_on(void) {
    struct pollfd input = {.fd = 0, .events = 0, .revents = 0};
    poll(&input, 1, 0);
    return !(input.revents & (POLLHUP | POLLERR)) && now_seconds() < ends_at_seconds;
}

/* A chain of dependent multiplications. Always inlined, so that its time belongs to the caller. The variable in
 * memory forces a frame of the caller: gcc omits the frames of functions that neither call nor use the stack,
 * regardless of its options. */
static inline __attribute__((always_inline)) unsigned long spin(unsigned long steps) {
    volatile unsigned long in_memory = steps;
    unsigned long state = in_memory;
    for (unsigned long step = 0; step < steps; step++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        __asm__ volatile("" : "+r"(state));
    }
    return state;
}

/* Always inlined, as its time is the caller's. A random number from half the mean to one and a half, by xorshift64 (Marsaglia, "Xorshift RNGs", 2003). Rounds of
 * constant length can be in step with the sampling timer, which then finds the same functions again and again. */
static inline __attribute__((always_inline)) unsigned long varied(unsigned long mean) {
    static unsigned long state = 88172645463325252UL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return mean / 2 + state % mean;
}
