/* JIT code with symbols in a perf map: main > run > [JIT code].
 *
 * Two functions spin in an anonymous executable mapping, HotLoop for 75 % and ColdLoop for 25 % of the time. argv[2]
 * selects the content of /tmp/perf-PID.map:
 *   lower      addresses as 7f12...      (default)
 *   prefixed   addresses as 0x7f12...
 *   upper      addresses as 00007F12...
 *   again      wrong names first, then the right ones: later lines replace earlier ones
 *   none       there is no map
 *   replacing  code_of_odd and code_of_even in turns, from run_odd and run_even: a new line each 300 ms replaces the one before,
 *              from a line of input on
 * and, as malicious targets do,
 *   names      names with ';', a terminal's escapes and bytes that are not UTF-8
 *   longline   a line of one megabyte before the right ones
 *   huge       ten gigabytes of zeros behind the right lines
 *   symlink    a link to /etc/shadow
 *   device     a link to /dev/zero
 *   fifo       a FIFO without a writer
 *
 * argv[3] selects the memory of the code:
 *   anonymous  a private mapping    (default)
 *   memfd      a memory file (memfd_create(2)) that is mapped twice, as in Erlang, QEMU and .NET
 *   shm        an unlinked file in /dev/shm
 *   unlinked   an unlinked file in /tmp
 *   file       a regular file in /tmp */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "jit_code.h"
#include "lifetime.h"

enum { COLD_OFFSET = 1024, MAPPING_BYTES = 4096, LONG_LINE_BYTES = 1 << 20 };

static const char HOT[] = "void [demo] Demo.Program::HotLoop(int64)[Optimized]";
static const char COLD[] = "void [demo] Demo.Program::ColdLoop(int64)[Optimized]";

static char map_path[64];

static void remove_map(void) { unlink(map_path); }

static char code_path[64];

static void remove_code(void) { unlink(code_path); }

/* A file for the code; -1 for none. */
static int code_file(const char *memory) {
    if (strcmp(memory, "anonymous") == 0)
        return -1;
    if (strcmp(memory, "memfd") == 0)
        return memfd_create("vmem", MFD_CLOEXEC);
    const char *folder = strcmp(memory, "shm") == 0 ? "/dev/shm" : "/tmp";
    snprintf(code_path, sizeof code_path, "%s/jit-code-%d", folder, getpid());
    int file = open(code_path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0)
        exit(1);
    if (strcmp(memory, "file") == 0)
        atexit(remove_code);
    else
        remove_code();
    return file;
}

static char *map_code(int file, int protection) {
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *code = mmap(NULL, MAPPING_BYTES, protection, flags, file, 0);
    if (code == MAP_FAILED)
        exit(1);
    return code;
}

static char *generate(const char *memory) {
    int file = code_file(memory);
    if (file >= 0 && ftruncate(file, MAPPING_BYTES) != 0)
        exit(1);
    char *code = map_code(file, PROT_READ | PROT_WRITE);
    memcpy(code, CODE, sizeof CODE);
    memcpy(code + COLD_OFFSET, CODE, sizeof CODE);
    if (file < 0)
        mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC);
    else
        code = map_code(file, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(code, code + MAPPING_BYTES);
    return code;
}

static void write_line(FILE *map, const char *format, const char *address, const char *name) {
    fprintf(map, format, (unsigned long)address, sizeof CODE, name);
}

static void write_lines(FILE *map, const char *code, const char *look) {
    const char *format = "%lx %zx %s\n";
    if (strcmp(look, "prefixed") == 0)
        format = "0x%lx 0x%zx %s\n";
    else if (strcmp(look, "upper") == 0)
        format = "%016lX %zx %s\n";
    if (strcmp(look, "again") == 0) {
        write_line(map, format, code, "wrong");
        write_line(map, format, code + COLD_OFFSET, "wrong");
    }
    if (strcmp(look, "longline") == 0) {
        fprintf(map, "%lx %zx ", (unsigned long)code, sizeof CODE);
        for (int byte = 0; byte < LONG_LINE_BYTES; byte++)
            fputc('x', map);
        fputc('\n', map);
    }
    int hostile = strcmp(look, "names") == 0;
    write_line(map, format, code, hostile ? "Hot;Loop \x1b[31mred\x1b[0m \r<b>&\xff\xfe" : HOT);
    write_line(map, format, code + COLD_OFFSET, COLD);
}

static void write_map(const char *code, const char *look) {
    snprintf(map_path, sizeof map_path, "/tmp/perf-%d.map", getpid());
    if (strcmp(look, "none") == 0)
        return;
    atexit(remove_map);
    if (strcmp(look, "symlink") == 0 || strcmp(look, "device") == 0) {
        if (symlink(look[0] == 's' ? "/etc/shadow" : "/dev/zero", map_path) != 0)
            exit(1);
        return;
    }
    if (strcmp(look, "fifo") == 0) {
        if (mkfifo(map_path, 0600) != 0)
            exit(1);
        return;
    }
    FILE *map = fopen(map_path, "w");
    if (map == NULL)
        exit(1);
    write_lines(map, code, look);
    fflush(map);
    if (strcmp(look, "huge") == 0 && ftruncate(fileno(map), 10L << 30) != 0)
        exit(1);
    fclose(map);
}

static void run_odd(function *code) { code(varied(25000)); }

static void run_even(function *code) { code(varied(25000)); }

/* The line is there before its code runs. */
static void run_replacing(const char *code) {
    int is_odd = 0;
    double until_seconds = 0;
    while (goes_on()) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        int may_replace = until_seconds == 0 || poll(&input, 1, 0) > 0;
        if (may_replace && now_seconds() >= until_seconds) {
            is_odd = !is_odd;
            FILE *map = fopen(map_path, "a");
            if (map == NULL)
                exit(1);
            write_line(map, "%lx %zx %s\n", code, is_odd ? "code_of_odd" : "code_of_even");
            fclose(map);
            until_seconds = now_seconds() + 0.3;
        }
        (is_odd ? run_odd : run_even)((function *)code);
    }
}

static void run(const char *code) {
    function *hot = (function *)code, *cold = (function *)(code + COLD_OFFSET);
    while (goes_on())
        for (int round = 0; round < 16; round++) {
            unsigned long unit = varied(25000);
            hot(3 * unit);
            cold(unit);
        }
}

int main(int argc, char **argv) {
    const char *code = generate(argc > 3 ? argv[3] : "anonymous");
    write_map(code, argc > 2 ? argv[2] : "lower");
    ready(argc, argv);
    if (argc > 2 && strcmp(argv[2], "replacing") == 0)
        run_replacing(code);
    else
        run(code);
    return 0;
}
