/* Processes whose address space takes long to tear down: main forks children one after the other. Each touches 256 MiB
 * page by page and exits. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lifetime.h"

static void touch(void) {
    size_t bytes = 256 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    /* Large pages are torn down too fast to be sampled. */
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
}

int main(int argc, char **argv) {
    ready(argc, argv);
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
