// C++ exceptions: main > run > catches > 4 x passes > throws > the unwinder of libgcc. Each frame between has an
// object, whose destructor runs during unwinding. When libgcc jumps to a destructor, it has overwritten its own
// frame, so its caller is unknown: additional work makes samples of that moment rare.
#include <stdexcept>

#include "../lifetime.h"

static volatile unsigned long sink;
static volatile bool fails = true;

struct Guard {
    ~Guard() { sink = sink + spin(60000); }
};

static void throws() {
    sink = sink + spin(120000);
    if (fails)
        throw std::runtime_error("thrown");
}

static void passes(int frames_left) {
    Guard guard;
    if (frames_left == 0)
        throws();
    else
        passes(frames_left - 1);
    sink = sink + 1;
}

static void catches() {
    try {
        passes(3);
    } catch (const std::runtime_error &error) {
        sink = sink + error.what()[0];
    }
    sink = sink + 1;
}

static void run() {
    while (goes_on())
        for (int time = 0; time < 32; time++)
            catches();
}

int main(int argc, char **argv) {
    ready(argc, argv);
    run();
    return 0;
}
