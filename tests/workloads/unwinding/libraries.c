// CPU time in the C library, its callbacks and the vdso. argv[2] selects the mode:
//   leaves     main > run > allocate > malloc, free; > copy > memcpy; > measure > strlen (default)
//   callbacks  main > run > sort > qsort > ... > compare; > search > bsearch > compare
//   vdso       main > run > ask_time > clock_gettime > the vdso's
#include <string.h>

#include "../lifetime.h"

enum { BLOCKS = 64, NUMBERS = 4096, BYTES = 60000 };

static volatile unsigned long sink;

static void allocate(void) {
    void *blocks[BLOCKS];
    for (int round = 0; round < 50; round++) {
        for (int block = 0; block < BLOCKS; block++) {
            blocks[block] = malloc(16 + block * 97 % 4096);
            sink += (unsigned long)blocks[block];
        }
        for (int block = 0; block < BLOCKS; block++)
            free(blocks[block]);
    }
}

static char to[BYTES], from[BYTES + 1];

static void copy(void) {
    // Called through a pointer in memory: gcc would replace known functions by its own code.
    void *(*volatile library_memcpy)(void *, const void *, size_t) = memcpy;
    for (int round = 0; round < 50; round++)
        sink += ((char *)library_memcpy(to, from, BYTES))[round];
}

static void measure(void) {
    size_t (*volatile library_strlen)(const char *) = strlen;
    for (int round = 0; round < 200; round++)
        sink += library_strlen(from);
}

static void leaves(void) {
    allocate();
    copy();
    measure();
    sink++;
}

static int compare(const void *left, const void *right) {
    sink += spin(50);
    return *(const int *)left - *(const int *)right;
}

static int numbers[NUMBERS];

static void sort(void) {
    unsigned long lot = sink | 1;
    for (int number = 0; number < NUMBERS; number++) {
        lot = lot * 6364136223846793005UL + 1442695040888963407UL;
        numbers[number] = lot >> 34;
    }
    qsort(numbers, NUMBERS, sizeof numbers[0], compare);
    sink++;
}

static void search(void) {
    void *(*volatile library_bsearch)(const void *, const void *, size_t, size_t, int (*)(const void *, const void *)) = bsearch;
    for (int number = 0; number < NUMBERS; number++)
        sink += (unsigned long)library_bsearch(&numbers[number], numbers, NUMBERS, sizeof numbers[0], compare);
}

static void callbacks(void) {
    sort();
    search();
    sink++;
}

static void ask_time(void) {
    struct timespec now;
    for (int time = 0; time < 1000; time++)
        sink += clock_gettime(CLOCK_MONOTONIC, &now) + now.tv_nsec;
}

static void run(void (*work)(void)) {
    while (goes_on())
        for (int time = 0; time < 4; time++)
            work();
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "leaves";
    memset(from, 'x', BYTES);
    ready(argc, argv);
    run(strcmp(mode, "callbacks") == 0 ? callbacks : strcmp(mode, "vdso") == 0 ? ask_time : leaves);
    return 0;
}
