/* Repeats something a number of times a minute. */
#pragma once

#include "lifetime.h"

/* Sleeps until the next of `per_minute` turns is due, and counts it. Turns that are late follow without a sleep.
 * Returns 0 when the workload has to end. */
static inline int next_turn(double per_minute, unsigned long *turns) {
    static double began_at_seconds;
    if (began_at_seconds == 0)
        began_at_seconds = now_seconds();
    double due_at_seconds = began_at_seconds + *turns * 60 / per_minute;
    for (double left; (left = due_at_seconds - now_seconds()) > 0;) {
        if (!goes_on())
            return 0;
        double pause = left < 0.1 ? left : 0.1;
        struct timespec time = {.tv_nsec = pause * 1e9};
        nanosleep(&time, NULL);
    }
    (*turns)++;
    return goes_on();
}

static inline void print_turns(unsigned long turns) {
    printf("turns %lu\n", turns);
    fflush(stdout);
}
