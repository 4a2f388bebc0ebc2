/* A program that passes for a stripped .NET runtime (it exports coreclr_initialize): main > run > qsort of libc > compare >
 * left or right. Built without a symbol table.
 *
 * argv[2] is the path of a ReadyToRun image, or missing. The program maps the image as the core library, and memory
 * behind it where a runtime would have the addresses of its helpers. Each word of that memory is another lie: an address
 * in a function of its own or of another module, in the memory itself, in a stub, or in none. The stubs jump to such
 * addresses too, and to themselves. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "lifetime.h"

enum {
    SPACE_BYTES = 32 << 20,
    IMAGE_BYTES = 1 << 20,
    STUB_MAPPINGS = 100,
    STUB_MAPPING_BYTES = 0x6000,
    FIXUP_DATA = 0x4010,
};

void coreclr_initialize(void) {}

static volatile unsigned long sink;

static void left(void) { sink += spin(varied(20000)); }
static void right(void) { sink += spin(varied(20000)); }

static int compare(const void *one, const void *other) {
    *(const char *)one == *(const char *)other ? left() : right();
    sink++;
    return 0;
}

static void run(void) {
    char items[] = {1, 1, 2, 2};
    while (goes_on())
        for (int round = 0; round < 4; round++)
            qsort(items, sizeof items, 1, compare);
}

static void require(int condition) {
    if (!condition)
        exit(1);
}

static void *mapped(void *at, size_t bytes, int protection, int flags, int file) {
    void *start = mmap(at, bytes, protection, flags, file, 0);
    require(start != MAP_FAILED);
    return start;
}

static char *put(char *at, const void *bytes, size_t count) {
    memcpy(at, bytes, count);
    return at + count;
}

/* mov rax, target; jmp rax */
static void put_jump(char *at, uint64_t target) {
    at = put(at, "\x48\xb8", 2);
    at = put(at, &target, 8);
    put(at, "\xff\xe0", 2);
}

/* mov rdi, 0; jmp stub + distance */
static void put_helper(char *at, int32_t distance) {
    const int32_t jump_bytes = 15;
    distance -= jump_bytes;
    at = put(at, "\x48\xbf\0\0\0\0\0\0\0\0\xe9", 11);
    put(at, &distance, 4);
}

/* Stubs as .NET 7 and later have them: a precode of a method that is not compiled, which tells where the prestub is, and
 * jumps. */
static char *map_stubs(void) {
    int file = memfd_create("doublemapper", 0);
    require(file >= 0 && ftruncate(file, STUB_MAPPING_BYTES) == 0);
    char *written = mapped(NULL, STUB_MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    char *stubs = NULL;
    for (int count = 0; count < STUB_MAPPINGS; count++)
        stubs = mapped(NULL, STUB_MAPPING_BYTES, PROT_READ | PROT_EXEC, MAP_SHARED, file);
    put(written, "\xff\x25\xfa\x3f\0\0\x4c\x8b\x15\xfb\x3f\0\0\xff\x25\xfd\x3f\0\0", 19);
    const uint64_t prestub = (uintptr_t)right;
    put(written + FIXUP_DATA, &prestub, 8);
    put_helper(written + 0x100, 0);
    put_helper(written + 0x200, 0x100);
    put_jump(written + 0x300, (uintptr_t)left);
    put_jump(written + 0x400, (uintptr_t)stubs + 0x400);
    put_jump(written + 0x500, 0x10);
    put_helper(written + 0x600, INT32_MAX);
    return stubs;
}

static void lie(const char *path) {
    int file = open(path, O_RDONLY);
    struct stat status;
    require(file >= 0 && fstat(file, &status) == 0 && status.st_size < IMAGE_BYTES);
    char *space = mapped(NULL, SPACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    mapped(space, status.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file);
    char *stubs = map_stubs();
    uint64_t *cells = (uint64_t *)(space + IMAGE_BYTES), *end = (uint64_t *)(space + SPACE_BYTES);
    const uint64_t lies[] = {
        (uintptr_t)left,    (uintptr_t)right + 3, (uintptr_t)qsort,    (uintptr_t)write,
        (uintptr_t)cells,   (uintptr_t)end,       0x10,                UINT64_MAX,
        (uintptr_t)stubs,   (uintptr_t)stubs + 0x100, (uintptr_t)stubs + 0x200, (uintptr_t)stubs + 0x300,
        (uintptr_t)stubs + 0x400, (uintptr_t)stubs + 0x500, (uintptr_t)stubs + 0x600, 0xffffffff81000000,
        (uintptr_t)space,
    };
    for (size_t cell = 0; cells + cell < end; cell++)
        cells[cell] = lies[cell % (sizeof lies / sizeof *lies)];
}

int main(int argc, char **argv) {
    if (argc > 2)
        lie(argv[2]);
    ready(argc, argv);
    run();
    return 0;
}
