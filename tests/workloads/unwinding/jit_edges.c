/* JIT code whose callers have no frame pointer, named by a perf map. argv[2]:
 *   trampolines  main > run > enter > trampoline > evaluate > trampoline > ... > evaluate > leaf, all time in leaf: a trampoline
 *                adjusts the stack pointer alone, as that of `python -X perf` does
 *   entries      main > run > call_many > entry: a function with a frame pointer, and no loop: much of its time is in its prologue
 *                and its epilogue */
#include <string.h>
#include <sys/mman.h>

#include "../lifetime.h"

enum { DEPTH = 10, MAPPING_BYTES = 4096, ENTRY_OFFSET = 1024 };

/* sub $8, %rsp; call *%rsi; add $8, %rsp; ret */
static const unsigned char TRAMPOLINE[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd6, 0x48, 0x83, 0xc4, 8, 0xc3};

/* push %rbp; push %r15; push %rbx; sub $0x18, %rsp; lea 0x28(%rsp), %rbp; mov %edi, %eax; add $0x18, %rsp; pop %rbx; pop %r15;
 * pop %rbp; ret */
static const unsigned char ENTRY[] = {0x55, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48, 0x8d, 0x6c, 0x24, 0x28,
                                      0x89, 0xf8, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x41, 0x5f, 0x5d, 0xc3};

typedef unsigned long function(unsigned long value);
typedef unsigned long trampoline_function(unsigned long value, function *callee);

static trampoline_function *trampoline;
static function *entry;
static volatile unsigned long sink;
static char map_path[64];

static void remove_map(void) { unlink(map_path); }

static void generate(void) {
    char *code = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        exit(1);
    memcpy(code, TRAMPOLINE, sizeof TRAMPOLINE);
    memcpy(code + ENTRY_OFFSET, ENTRY, sizeof ENTRY);
    mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC);
    trampoline = (trampoline_function *)code;
    entry = (function *)(code + ENTRY_OFFSET);
    snprintf(map_path, sizeof map_path, P_tmpdir "/perf-%d.map", getpid());
    FILE *map = fopen(map_path, "w");
    if (map == NULL)
        exit(1);
    atexit(remove_map);
    fprintf(map, "%lx %zx trampoline\n", (unsigned long)trampoline, sizeof TRAMPOLINE);
    fprintf(map, "%lx %zx entry\n", (unsigned long)entry, sizeof ENTRY);
    fclose(map);
}

static void leaf(void) { sink += spin(varied(100000)); }

/* The frame pointer has another value than an address of the stack. */
static unsigned long evaluate(unsigned long left) {
    unsigned long result;
    __asm__ volatile("mov %1, %%rbp; mov %%rbp, %0" : "=r"(result) : "r"(left) : "rbp");
    if (left > 1)
        result += trampoline(left - 1, evaluate);
    else
        leaf();
    return result * 3;
}

static void enter(void) { sink += trampoline(DEPTH, evaluate) + 1; }

static void call_many(void) {
    unsigned long sum = 0;
    for (unsigned long number = 0; number < 10000; number++)
        sum += entry(number);
    sink += sum;
}

static void run(void (*work)(void)) {
    while (goes_on())
        work();
}

int main(int argc, char **argv) {
    generate();
    ready(argc, argv);
    run(argc > 2 && strcmp(argv[2], "entries") == 0 ? call_many : enter);
    return 0;
}
