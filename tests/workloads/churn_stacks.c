/* Distinct stacks without end: main > 32 x left or right > leaf, each time along another random path.
 *
 * Arguments: seconds, samples a minute, sampling frequency in Hz. Uses as much CPU time as has so many samples at this
 * frequency. Each path takes less than a period of 1 kHz, so nearly every sample has another stack. */
#include "lifetime.h"

enum { DEPTH = 32 };

static volatile unsigned long sink;

static void leaf(void) { sink += spin(200000); }

static void left(unsigned long path, int depth);
static void right(unsigned long path, int depth);

/* Inlined, so that only the turns have frames. */
static inline __attribute__((always_inline)) void next(unsigned long path, int depth) {
    if (depth == DEPTH)
        leaf();
    else if (path >> depth & 1)
        right(path, depth + 1);
    else
        left(path, depth + 1);
}

static void left(unsigned long path, int depth) {
    next(path, depth);
    sink++;
}

static void right(unsigned long path, int depth) {
    next(path, depth);
    sink += 2;
}

static double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec + used.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 1;
    double share = atof(argv[2]) / 60 / atof(argv[3]), began_at_seconds = now_seconds();
    unsigned long path = getpid();
    ready(argc, argv);
    while (goes_on()) {
        path = path * 6364136223846793005UL + 1442695040888963407UL;
        next(path >> 32, 0);
        double ahead = cpu_seconds() / share - (now_seconds() - began_at_seconds);
        struct timespec pause = {.tv_nsec = ahead < 0.5 ? ahead * 1e9 : 500000000};
        if (ahead > 0)
            nanosleep(&pause, NULL);
    }
    return 0;
}
