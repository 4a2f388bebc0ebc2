// The maximum number of executable mappings, up to argv[2] (default 100,000). They alternate between this program's
// file and anonymous memory, so that the kernel does not merge them: main > run > leaf. Prints "mappings N" before
// "ready".
#include <fcntl.h>
#include <sys/mman.h>

#include "../lifetime.h"

// Mappings that are left to the C library.
enum { SPARE = 64 };

static volatile unsigned long sink;

static void leaf(void) { sink += spin(1000000); }

static void run(void) {
    while (goes_on())
        leaf();
}

static void *map(int file, int number) {
    int is_of_file = number % 2 == 0;
    int flags = MAP_PRIVATE | (is_of_file ? 0 : MAP_ANONYMOUS);
    return mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_EXEC, flags, is_of_file ? file : -1, 0);
}

static int make_mappings(int wanted) {
    int file = open("/proc/self/exe", O_RDONLY);
    void *last[SPARE];
    int made = 0;
    while (made < wanted) {
        void *mapping = map(file, made);
        if (mapping == MAP_FAILED)
            break;
        last[made++ % SPARE] = mapping;
    }
    for (int spare = 0; spare < SPARE && made > SPARE; spare++, made--)
        munmap(last[(made - 1) % SPARE], sysconf(_SC_PAGESIZE));
    return made;
}

int main(int argc, char **argv) {
    int made = make_mappings(argc > 2 ? atoi(argv[2]) : 100000);
    printf("mappings %d\n", made);
    ready(argc, argv);
    run();
    return 0;
}
