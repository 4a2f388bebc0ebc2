// Tail calls: main > run > first, which is replaced by second, which is replaced by leaf. No stack contains two of
// the three: the return address of each is that of first's caller.
#include "../lifetime.h"

static volatile unsigned long sink;

static unsigned long leaf(unsigned long number) { return spin(100000 + number); }

static unsigned long second(unsigned long number) {
    sink += spin(50000);
    return leaf(number + 1);
}

static unsigned long first(unsigned long number) {
    sink += spin(50000);
    return second(number + 1);
}

static void run(void) {
    while (goes_on())
        sink += first(sink & 1);
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
