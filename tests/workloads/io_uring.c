/* A process for which a thread of the kernel waits: io_uring runs a read of an empty pipe in a worker.
 * Arguments: seconds. */
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "lifetime.h"

static void *ring_memory(int ring, size_t bytes, off_t offset) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

int main(int argc, char **argv) {
    static char byte;
    int ends[2];
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0)
        abort();
    if (pipe(ends) != 0)
        abort();
    char *queue = ring_memory(ring, parameters.sq_off.array + sizeof(unsigned), IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = ring_memory(ring, sizeof(*entry), IORING_OFF_SQES);
    memset(entry, 0, sizeof(*entry));
    entry->opcode = IORING_OP_READ;
    entry->flags = IOSQE_ASYNC;
    entry->fd = ends[0];
    entry->addr = (unsigned long)&byte;
    entry->len = 1;
    ((unsigned *)(queue + parameters.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(queue + parameters.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) != 1)
        abort();
    ready(argc, argv);
    struct timespec pause = {.tv_nsec = 100000000};
    while (goes_on())
        nanosleep(&pause, NULL);
    return 0;
}
