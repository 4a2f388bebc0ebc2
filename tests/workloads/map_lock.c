/* Eight threads that contend for the lock of their address space: run > grow_heap > mmap and munmap. Arguments: seconds. */
#include <pthread.h>
#include <sys/mman.h>

#include "lifetime.h"

enum { THREADS = 8 };

static volatile unsigned long sink;

__attribute__((noinline)) static void grow_heap(void) {
    const size_t bytes = 16 << 20;
    char *heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (heap == MAP_FAILED || munmap(heap, bytes) != 0)
        abort();
    sink++;
}

static void *run(void *argument) {
    for (;;)
        grow_heap();
    return argument;
}

int main(int argc, char **argv) {
    for (int count = 0; count < THREADS; count++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            abort();
    }
    ready(argc, argv);
    struct timespec pause = {.tv_nsec = 100000000};
    while (goes_on())
        nanosleep(&pause, NULL);
    return 0;
}
