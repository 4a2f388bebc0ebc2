/* A target that ends while it is sampled: main > run > burn for argv[1] seconds, then exit code 7. */
#include "lifetime.h"

enum { EXIT_CODE = 7 };

static volatile unsigned long sink;

static void burn(void) { sink += spin(100000); }

static void run(void) {
    while (goes_on())
        burn();
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return EXIT_CODE;
}
