/* System calls: main > run > read_zeros > read, with more than nine tenths of the time in the kernel. */
#include <fcntl.h>

#include "lifetime.h"

static char buffer[1 << 20];

static int read_zeros(int device) {
    return read(device, buffer, sizeof buffer) > 0;
}

static int run(int device) {
    while (goes_on())
        for (int time = 0; time < 16; time++)
            if (!read_zeros(device))
                return 1;
    return 0;
}

int main(int argc, char **argv) {
    int device = open("/dev/zero", O_RDONLY);
    ready(argc, argv);
    return run(device);
}
