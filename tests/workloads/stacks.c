/* 10,000 distinct stacks of 24 frames below the C library's: main > run > 21 x digit_N > leaf.
 *
 * The last four digits before the leaf are the number of the stack, the others are digit_0. Each call uses a
 * pseudo-random number with a fixed seed: consecutive numbers could be in phase with the sampling frequency. */
#include "lifetime.h"

enum { STACKS = 10000, DIGITS = 21 };

static volatile unsigned long sink;

static void leaf(void) { sink += spin(20000); }

#define DIGIT(N)                                          \
    static void digit_##N(int number, int digits_left) {  \
        next(number, digits_left);                        \
        sink++;                                           \
    }

/* The next digit, thousands first. Inlined, so that only digits have frames. */
static inline __attribute__((always_inline)) void next(int number, int digits_left);

DIGIT(0) DIGIT(1) DIGIT(2) DIGIT(3) DIGIT(4) DIGIT(5) DIGIT(6) DIGIT(7) DIGIT(8) DIGIT(9)

static void (*const digits[])(int, int) = {digit_0, digit_1, digit_2, digit_3, digit_4,
                                           digit_5, digit_6, digit_7, digit_8, digit_9};

static void next(int number, int digits_left) {
    static const int places[] = {1, 10, 100, 1000};
    if (digits_left == 0)
        leaf();
    else if (digits_left > 4)
        digits[0](number, digits_left - 1);
    else
        digits[number / places[digits_left - 1] % 10](number, digits_left - 1);
}

static void run(void) {
    unsigned long lot = 1;
    while (goes_on())
        for (int call = 0; call < 16; call++) {
            lot = lot * 6364136223846793005UL + 1442695040888963407UL;
            next((lot >> 33) % STACKS, DIGITS);
        }
    sink++;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
