/* How every workload begins and ends: it prints "ready PID" and runs until the pipe on its standard input is
 * closed, or for argv[1] seconds (60 if there is none), so that a failed test leaves nothing running. */
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

/* Costs a system call: ask about once a millisecond. */
static inline int goes_on(void) {
    struct pollfd input = {.fd = 0, .events = 0, .revents = 0};
    poll(&input, 1, 0);
    return !(input.revents & (POLLHUP | POLLERR)) && now_seconds() < ends_at_seconds;
}

/* The same work for everyone: a chain of dependent multiplications, a few cycles a step. Always inlined, so that
 * its time belongs to the function that calls it. The variable in memory gives that function a frame of its own: an
 * optimizing gcc takes it from functions that neither call nor use the stack, whatever its options say. */
static inline __attribute__((always_inline)) unsigned long spin(unsigned long steps) {
    volatile unsigned long in_memory = steps;
    unsigned long state = in_memory;
    for (unsigned long step = 0; step < steps; step++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        __asm__ volatile("" : "+r"(state));
    }
    return state;
}
