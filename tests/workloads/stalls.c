/* Computes in work() until a line arrives on standard input, then waits in wait_for_line() for the next one. */
#include "lifetime.h"

static volatile unsigned long sink;

static int line_arrives(int timeout_ms) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    if (poll(&input, 1, timeout_ms) <= 0)
        return 0;
    while (read(0, &byte, 1) == 1 && byte != '\n')
        ;
    return 1;
}

static __attribute__((noinline)) void work(void) {
    do {
        sink += spin(400000);
    } while (!line_arrives(0) && goes_on());
    sink++;
}

static __attribute__((noinline)) void wait_for_line(void) {
    while (!line_arrives(100) && goes_on())
        ;
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    while (goes_on()) {
        work();
        wait_for_line();
    }
    return 0;
}
