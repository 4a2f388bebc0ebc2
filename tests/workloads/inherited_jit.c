/* JIT code that a child has from a fork: main > run > [JIT code] in the child, whose process id is printed.
 *
 * The parent writes the names of its code into /tmp/perf-PID.map, or into a jitdump that it maps, and forks. argv[2]:
 *   map         a perf map, then a fork
 *   dump        a jitdump, then a fork
 *   later       as map; after the fork, the parent adds other code at an address where it had none
 *   replaced    as map; after the fork, the parent replaces the code, at one address of two
 *   own         as map; the child replaces the code at one address of two, in a perf map of its own
 *   grandchild  as map, with two forks; the process between the two ends
 *   executed    as map; the child executes the program again, and has code at the same address
 * argv[3]:
 *   before      the child is ready before the session (default)
 *   meanwhile   the parent prints its id and runs its code; it forks when it reads a line, and changes its code at another */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "jit_code.h"
#include "lifetime.h"

enum { SECOND_OFFSET = 1024, UNNAMED_OFFSET = 2048, MAPPING_BYTES = 4096 };

static char file_path[64];

static void remove_file(void) { unlink(file_path); }

static char *generate(void *address) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0);
    char *code = mmap(address, MAPPING_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (code == MAP_FAILED)
        exit(1);
    for (int offset = 0; offset < MAPPING_BYTES; offset += SECOND_OFFSET)
        memcpy(code + offset, CODE, sizeof CODE);
    mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC);
    return code;
}

static void add_line(const char *code, const char *name) {
    snprintf(file_path, sizeof file_path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(file_path, "a");
    if (map == NULL)
        exit(1);
    fprintf(map, "%lx %zx %s\n", (unsigned long)code, sizeof CODE, name);
    fclose(map);
}

static void add_record(FILE *dump, const char *code, const char *name) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned length = 56 + strlen(name) + 1 + sizeof CODE;
    unsigned header[2] = {0, length}, ids[2] = {getpid(), getpid()};
    unsigned long time_ns = now.tv_sec * 1000000000UL + now.tv_nsec;
    unsigned long numbers[4] = {(unsigned long)code, (unsigned long)code, sizeof CODE, 1};
    fwrite(header, sizeof header, 1, dump);
    fwrite(&time_ns, sizeof time_ns, 1, dump);
    fwrite(ids, sizeof ids, 1, dump);
    fwrite(numbers, sizeof numbers, 1, dump);
    fwrite(name, strlen(name) + 1, 1, dump);
    fwrite(code, sizeof CODE, 1, dump);
}

/* Away from the directories in which profilers search: only the mapping leads to it. */
static void write_dump(const char *code) {
    char folder[32];
    snprintf(folder, sizeof folder, P_tmpdir "/inherited-%d", getpid());
    if (mkdir(folder, 0700) != 0)
        exit(1);
    snprintf(file_path, sizeof file_path, "%s/jit-%d.dump", folder, getpid());
    FILE *dump = fopen(file_path, "w+");
    if (dump == NULL)
        exit(1);
    unsigned header[6] = {0x4A695444, 1, 40, 62, 0, getpid()};
    unsigned long rest[2] = {0, 0};
    fwrite(header, sizeof header, 1, dump);
    fwrite(rest, sizeof rest, 1, dump);
    add_record(dump, code, "first");
    add_record(dump, code + SECOND_OFFSET, "second");
    fflush(dump);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
}

static void remove_dump(void) {
    unlink(file_path);
    *strrchr(file_path, '/') = 0;
    rmdir(file_path);
}

/* The chain of the samples. */
static void run(const char *code) {
    for (int offset = 0; offset <= UNNAMED_OFFSET; offset += SECOND_OFFSET)
        ((function *)(code + offset))(varied(25000));
}

static void run_child(const char *code, const char *mode, int argc, char **argv) {
    if (strcmp(mode, "executed") == 0) {
        char address[32];
        snprintf(address, sizeof address, "%lx", (unsigned long)code);
        execl("/proc/self/exe", argv[0], argv[1], "again", address, NULL);
        exit(1);
    }
    if (strcmp(mode, "own") == 0)
        add_line(code + SECOND_OFFSET, "second_of_child");
    ready(argc, argv);
    while (goes_on())
        run(code);
    _exit(strcmp(mode, "own") == 0 ? unlink(file_path) : 0);
}

static void wait_for_line(void) {
    for (char byte = 0; byte != '\n';)
        if (read(0, &byte, 1) <= 0)
            return;
}

int main(int argc, char **argv) {
    const char *mode = argv[2], *start = argc > 3 ? argv[3] : "before";
    if (strcmp(mode, "again") == 0)
        run_child(generate((void *)strtoul(argv[3], NULL, 16)), mode, argc, argv);
    char *code = generate(NULL);
    if (strcmp(mode, "dump") == 0) {
        write_dump(code);
        atexit(remove_dump);
    } else {
        add_line(code, "first");
        add_line(code + SECOND_OFFSET, "second");
        atexit(remove_file);
    }
    if (strcmp(start, "meanwhile") == 0) {
        ready(argc, argv);
        struct pollfd input = {.fd = 0, .events = POLLIN};
        while (poll(&input, 1, 0) == 0)
            run(code);
        wait_for_line();
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t child = fork();
    if (child == 0) {
        if (strcmp(mode, "grandchild") == 0 && fork() != 0)
            _exit(0);
        run_child(code, mode, argc, argv);
    }
    if (strcmp(start, "meanwhile") == 0)
        wait_for_line();
    if (strcmp(mode, "replaced") == 0)
        add_line(code + SECOND_OFFSET, "second_of_parent");
    if (strcmp(mode, "later") == 0)
        add_line(code + UNNAMED_OFFSET, "third_of_parent");
    /* Every descendant ends with the input. */
    while (wait(NULL) > 0)
        ;
    return 0;
}
