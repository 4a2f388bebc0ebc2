/* Known shares of one thread: main > run > round_of_work > alpha 60 %, beta 30 %, gamma 10 %.
 *
 * All three use the same loop. A round takes well below a millisecond, so the shares hold over any interval. */
#include "lifetime.h"

static volatile unsigned long sink;

static void alpha(void) { sink += spin(60000); }
static void beta(void) { sink += spin(30000); }
static void gamma_(void) __asm__("gamma");
static void gamma_(void) { sink += spin(10000); }

static void round_of_work(void) {
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
