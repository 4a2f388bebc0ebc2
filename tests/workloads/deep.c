/* A stack 1,000 calls deep: main > run > dive > dive > ... > dive > bottom, with all time in bottom. */
#include "lifetime.h"

enum { DEPTH = 1000 };

static volatile unsigned long sink;

static void bottom(void) {
    while (goes_on())
        sink += spin(1000000);
}

static void dive(int calls_left) {
    if (calls_left == 0)
        bottom();
    else
        dive(calls_left - 1);
    sink++;
}

static void run(void) {
    dive(DEPTH - 1);
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
