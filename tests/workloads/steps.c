// Calls functions of the C library with deep and unusual stacks, for a test that executes it step by step.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELEMENTS 600

static int values[ELEMENTS];
static char text[4096];
static jmp_buf checkpoint;

static int compare(const void *one, const void *other) {
    int a = *(const int *)one, b = *(const int *)other;
    return (a > b) - (a < b);
}

static int descend(int depth) {
    char buffer[depth * 16 + 16];
    memset(buffer, depth, sizeof buffer);
    if (depth == 0) {
        if (text[0] != 0)
            longjmp(checkpoint, buffer[0] + 1);
        return buffer[0];
    }
    return descend(depth - 1) + buffer[depth];
}

int main(void) {
    static unsigned state = 1;
    static size_t length = 0;
    static int round = 0;
    for (; round < 40; round++) {
        for (int index = 0; index < ELEMENTS; index++) {
            state = state * 1103515245u + 12345u;
            values[index] = (int)(state >> 8);
        }
        qsort(values, ELEMENTS, sizeof *values, compare);
        length += (size_t)snprintf(text, sizeof text, "%d %s %.12g %a %x %5.2f", round, "text", round * 0.7, 1.5,
                                   state, strtod("12345.678e-3", NULL));
        if (setjmp(checkpoint) == 0) {
            descend(8);
        }
        void *blocks[16];
        for (int index = 0; index < 16; index++) {
            blocks[index] = malloc((size_t)(index * 97 + 1));
        }
        for (int index = 0; index < 16; index++) {
            free(blocks[index]);
        }
        time_t now = round * 86400;
        struct tm *day = gmtime(&now);
        length += strftime(text, sizeof text, "%A %d %B %Y", day);
        length += strlen(strstr(text, "19") ? text : "none");
    }
    printf("%zu\n", length);
    return 0;
}
