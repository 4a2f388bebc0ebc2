/* Two processes that pass a byte to and fro through pipes, on one CPU: each pass is a context switch.
 *
 * ping > pass: write(2) and read(2); pong is its child. Arguments: seconds. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include "lifetime.h"

static int to_pong[2], to_ping[2];

static void pass(int from, int to) {
    char byte = 0;
    if (write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
        abort();
}

static void answer(void) {
    char byte;
    while (read(to_pong[0], &byte, 1) == 1)
        if (write(to_ping[1], &byte, 1) != 1)
            abort();
}

int main(int argc, char **argv) {
    enum { PASSES_BETWEEN_CHECKS = 1000 };
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0 || pipe(to_pong) != 0 || pipe(to_ping) != 0)
        return 1;
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to_pong[1]);
        answer();
        return 0;
    }
    ready(argc, argv);
    while (goes_on())
        for (int count = 0; count < PASSES_BETWEEN_CHECKS; count++)
            pass(to_ping[0], to_pong[1]);
    return 0;
}
