/* A mostly idle process: main > run > work for half a millisecond, then a pause, about a thousandth of a CPU in
 * all, so that many of them fit on a small machine. */
#include "lifetime.h"

static volatile unsigned long sink;

static void work(void) { sink += spin(400000); }

static void run(void) {
    struct pollfd input = {.fd = 0};
    unsigned milliseconds = 250 + getpid() % 500;
    do {
        work();
        poll(&input, 1, milliseconds);
    } while (goes_on());
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
