// Stacks that are left by longjmp: main > run > lands > passes > jumps > leaf, and from there back into lands.
#include <setjmp.h>

#include "../lifetime.h"

static volatile unsigned long sink;
static jmp_buf landing;

static void leaf(void) { sink += spin(200000); }

static void jumps(void) {
    leaf();
    longjmp(landing, 1);
}

static void passes(unsigned long length) {
    volatile char bytes[length];
    bytes[length - 1] = 1;
    jumps();
    sink += bytes[length - 1];
}

static void lands(void) {
    if (setjmp(landing) == 0)
        passes((sink & 63) + 1);
    sink++;
}

static void run(void) {
    while (goes_on())
        lands();
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
