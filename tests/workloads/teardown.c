/* Processes whose address space takes long to tear down: main forks children one after the other. Each touches 256 MiB
 * page by page and exits. With the argument `map` after the seconds, main itself maps, touches and unmaps this memory, again
 * and again. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lifetime.h"

static const size_t bytes = 256 << 20;

static char *touch(void) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    /* Large pages are torn down too fast to be sampled. */
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    return memory;
}

int main(int argc, char **argv) {
    int maps = argc > 2 && strcmp(argv[2], "map") == 0;
    ready(argc, argv);
    while (maps && goes_on())
        munmap(touch(), bytes);
    while (goes_on()) {
        pid_t pid = fork();
        if (pid == 0) {
            touch();
            _exit(0);
        }
        int status = 1;
        waitpid(pid, &status, 0);
        if (status != 0)
            return 1;
    }
    return 0;
}
