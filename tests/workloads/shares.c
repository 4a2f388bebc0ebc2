/* Known shares of one thread: main > run > round_of_work > alpha 60 %, beta 30 %, gamma 10 %.
 *
 * All three use the same loop. A round takes well below a millisecond, so the shares hold over any interval. The
 * lengths of the rounds differ, so they hold at any sampling frequency. */
#include "lifetime.h"

static volatile unsigned long sink;
static unsigned long unit;

static void alpha(void) { sink += spin(6 * unit); }
static void beta(void) { sink += spin(3 * unit); }
static void gamma_(void) __asm__("gamma");
static void gamma_(void) { sink += spin(unit); }

static void round_of_work(void) {
    unit = varied(10000);
    alpha();
    beta();
    gamma_();
    sink++;
}

static void run(void) {
    while (goes_on())
        for (int round = 0; round < 16; round++)
            round_of_work();
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
