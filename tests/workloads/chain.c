/* One busy thread, always in the same stack of 24 frames below the C library's: main > run > 21 x link_NN > leaf. */
#include "lifetime.h"

static volatile unsigned long sink;

static void leaf(void) { sink += spin(8000000); }

#define LINK(NUMBER, CALLS)             \
    static void link_##NUMBER(void) {   \
        CALLS();                        \
        sink++;                         \
    }

LINK(21, leaf)
LINK(20, link_21) LINK(19, link_20) LINK(18, link_19) LINK(17, link_18) LINK(16, link_17)
LINK(15, link_16) LINK(14, link_15) LINK(13, link_14) LINK(12, link_13) LINK(11, link_12)
LINK(10, link_11) LINK(09, link_10) LINK(08, link_09) LINK(07, link_08) LINK(06, link_07)
LINK(05, link_06) LINK(04, link_05) LINK(03, link_04) LINK(02, link_03) LINK(01, link_02)

static void run(void) {
    while (goes_on())
        link_01();
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
