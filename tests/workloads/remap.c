/* Maps and unmaps executable memory often, and executes another program afterwards: main > compute_before_remaps.
 * It waits for a line on its input first.
 *
 * Arguments: seconds, number of mappings, path of the program. */
#include <poll.h>
#include <sys/mman.h>

#include "lifetime.h"

static unsigned long compute_before_remaps(void) { return spin(1000000); }

static int has_input(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) == 1 && (input.revents & POLLIN);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 1;
    unsigned long sink = 0;
    ready(argc, argv);
    while (!has_input() && goes_on())
        sink += compute_before_remaps();
    for (long number = atol(argv[2]); number > 0; number--) {
        void *memory = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return 1;
        munmap(memory, 4096);
    }
    execl(argv[3], argv[3], argv[1], (char *)NULL);
    return 127;
}
