// Frames with different prologues, argv[2] of them (default 40): main > run > array > saved > variable > realigned >
// array > ... > leaf, with all time in leaf.
#include "../lifetime.h"

static volatile unsigned long sink;

static void leaf(void) { sink += spin(varied(100000)); }

static unsigned long next(unsigned long level, unsigned long frames_left);

// An array of fixed size: the stack pointer is adjusted once.
static unsigned long array(unsigned long level, unsigned long frames_left) {
    volatile char bytes[200];
    bytes[level % sizeof bytes] = level;
    unsigned long result = next(level + 1, frames_left - 1);
    return result ^ bytes[frames_left % sizeof bytes];
}

// More values than scratch registers: callee-saved registers are pushed and popped one by one.
static unsigned long saved(unsigned long level, unsigned long frames_left) {
    unsigned long a = level * 3, b = level * 5, c = level * 7, d = level * 11, e = level * 13, f = level * 17;
    unsigned long result = next(level + 1, frames_left - 1);
    return result + a * b + c * d + e * f + (a ^ c ^ e) + (b ^ d ^ f) + (a + d) * (e + b);
}

// An array of variable length: the CFA is relative to a frame register.
static unsigned long variable(unsigned long level, unsigned long frames_left) {
    unsigned long length = (level & 63) + 1;
    volatile char bytes[length];
    bytes[length - 1] = level;
    unsigned long result = next(level + 1, frames_left - 1);
    return result + bytes[length - 1];
}

// An over-aligned local: the distance from the frame to the CFA is only known at run time.
static unsigned long realigned(unsigned long level, unsigned long frames_left) {
    volatile unsigned long words[8] __attribute__((aligned(64)));
    words[level & 7] = level;
    unsigned long result = next(level + 1, frames_left - 1);
    return result + words[level & 7];
}

// Inlined, so that only the four functions have frames.
static inline __attribute__((always_inline)) unsigned long next(unsigned long level, unsigned long frames_left) {
    static unsigned long (*const shapes[])(unsigned long, unsigned long) = {array, saved, variable, realigned};
    if (frames_left > 0)
        return shapes[level % 4](level, frames_left);
    leaf();
    return level;
}

static void run(unsigned long frames) {
    while (goes_on())
        sink += next(0, frames);
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run(argc > 2 ? strtoul(argv[2], NULL, 10) : 40);
    return 0;
}
