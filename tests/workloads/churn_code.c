/* JIT code in mappings that come and go: main > [JIT code], with symbols in a perf map.
 *
 * Arguments: seconds, mappings a minute. Each mapping has one function, called Churn.MethodN, which spins for about three
 * milliseconds. Prints "turns N" at the end, the number of mappings. */
#include <string.h>
#include <sys/mman.h>

#include "jit_code.h"
#include "pace.h"

enum { MAPPING_BYTES = 4096 };

static char map_path[64];

static void remove_map(void) { unlink(map_path); }

static int map_and_run(FILE *map, unsigned long number) {
    char *code = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    memcpy(code, CODE, sizeof CODE);
    mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, code + MAPPING_BYTES);
    fprintf(map, "%lx %zx Churn.Method%lu\n", (unsigned long)code, sizeof CODE, number);
    fflush(map);
    ((function *)code)(5000000);
    return munmap(code, MAPPING_BYTES);
}

int main(int argc, char **argv) {
    snprintf(map_path, sizeof map_path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(map_path, "w");
    if (argc != 3 || map == NULL)
        return 1;
    atexit(remove_map);
    unsigned long turns = 0;
    ready(argc, argv);
    while (next_turn(atof(argv[2]), &turns))
        if (map_and_run(map, turns) != 0)
            return 1;
    print_turns(turns);
    return 0;
}
