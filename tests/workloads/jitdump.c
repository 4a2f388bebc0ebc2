/* JIT code without frame pointers, with its call frame information in a jitdump: main > run > Outer > Inner.
 *
 * Both functions end with an indirect jump to the instruction behind it: neither the frame pointer nor the instructions that
 * follow lead to their callers. argv[2] `without` leaves the call frame information out. With `replacing`, Inner is replaced by
 * Other, and Other by Inner, again and again until a line is read: the row of Inner would find the caller of Other in `decoy`. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "lifetime.h"

enum { INNER_OFFSET = 64, MAPPING_BYTES = 4096 };

/* sub $40, %rsp; call *%rsi; lea 3(%rip), %r11; jmp *%r11; add $40, %rsp; ret */
static const unsigned char OUTER[] = {0x48, 0x83, 0xec, 40, 0xff, 0xd6, 0x4c, 0x8d, 0x1d, 3, 0,
                                      0,    0,    0x41, 0xff, 0xe3, 0x48, 0x83, 0xc4, 40, 0xc3};

/* sub $24, %rsp; 4: dec %rdi; jne 4; lea 3(%rip), %r11; jmp *%r11; add $24, %rsp; ret */
static const unsigned char INNER[] = {0x48, 0x83, 0xec, 24, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x4c, 0x8d, 0x1d,
                                      3,    0,    0,    0,  0x41, 0xff, 0xe3, 0x48, 0x83, 0xc4, 24,   0xc3};

/* push %rdx; sub $24, %rsp; 5: dec %edi; jne 5; lea 3(%rip), %r11; jmp *%r11; add $32, %rsp; ret */
static const unsigned char OTHER[] = {0x52, 0x48, 0x83, 0xec, 24,   0xff, 0xcf, 0x75, 0xfc, 0x4c, 0x8d, 0x1d,
                                      3,    0,    0,    0,    0x41, 0xff, 0xe3, 0x48, 0x83, 0xc4, 32,   0xc3};

/* A CIE (CFA rsp + 8, return address at CFA - 8, pcrel | sdata4) and an FDE. The section begins 24 bytes behind the start of the
 * code: at its end, aligned to 8. The address in the FDE is 32 bytes behind that. */
#define EH_FRAME(CODE_BYTES, PROLOGUE_BYTES, FRAME_BYTES, RELEASED_AFTER)                                            \
    {20,   0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,                    \
     20,   0, 0, 0, 28, 0, 0, 0, 256 - 56, 255, 255, 255, CODE_BYTES, 0, 0, 0, 0,                                    \
     0x40 | PROLOGUE_BYTES, 0x0e, 8 + FRAME_BYTES, 0x40 | (RELEASED_AFTER - PROLOGUE_BYTES), 0x0e, 8, 0, 0, 0, 0, 0}

static const unsigned char OUTER_EH_FRAME[] = EH_FRAME(21, 4, 40, 20);
static const unsigned char INNER_EH_FRAME[] = EH_FRAME(24, 4, 24, 23);
static const unsigned char OTHER_EH_FRAME[] = EH_FRAME(24, 5, 32, 23);

/* The header of a section. Readers of a jitdump need its length alone. */
static const unsigned char EH_FRAME_HDR[20] = {1, 0x1b, 3, 0x3b};

static FILE *dump;
static char dump_path[64];

static void remove_dump(void) { unlink(dump_path); }

static void write_numbers(int count, const unsigned long *numbers) {
    fwrite(numbers, sizeof *numbers, count, dump);
}

static void write_header(unsigned kind, size_t body_bytes) {
    unsigned words[2] = {kind, 16 + body_bytes};
    fwrite(words, sizeof words, 1, dump);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned long time_ns = now.tv_sec * 1000000000UL + now.tv_nsec;
    write_numbers(1, &time_ns);
}

/* The records of one function (Linux, tools/perf/Documentation/jitdump-specification.txt). */
static void write_function(const char *name, const char *code, size_t code_bytes, const unsigned char *eh_frame,
                           size_t eh_frame_bytes) {
    if (eh_frame != NULL) {
        unsigned long sizes[] = {eh_frame_bytes + sizeof EH_FRAME_HDR, sizeof EH_FRAME_HDR, 0};
        write_header(4, sizeof sizes + eh_frame_bytes + sizeof EH_FRAME_HDR);
        write_numbers(3, sizes);
        fwrite(eh_frame, eh_frame_bytes, 1, dump);
        fwrite(EH_FRAME_HDR, sizeof EH_FRAME_HDR, 1, dump);
    }
    unsigned long fields[] = {0, (unsigned long)code, (unsigned long)code, code_bytes, 1};
    write_header(0, sizeof fields + strlen(name) + 1 + code_bytes);
    write_numbers(5, fields);
    fwrite(name, strlen(name) + 1, 1, dump);
    fwrite(code, code_bytes, 1, dump);
    fflush(dump);
}

static void write_dump(const char *code, int has_frames) {
    snprintf(dump_path, sizeof dump_path, "/tmp/jit-%d.dump", getpid());
    dump = fopen(dump_path, "w+");
    if (dump == NULL)
        exit(1);
    atexit(remove_dump);
    unsigned words[] = {0x4a695444, 1, 40, 62, 0, getpid()};
    fwrite(words, sizeof words, 1, dump);
    unsigned long rest[] = {0, 0};
    write_numbers(2, rest);
    write_function("Outer", code, sizeof OUTER, has_frames ? OUTER_EH_FRAME : NULL, sizeof OUTER_EH_FRAME);
    write_function("Inner", code + INNER_OFFSET, sizeof INNER, has_frames ? INNER_EH_FRAME : NULL,
                   sizeof INNER_EH_FRAME);
    /* Profilers find the file by this mapping. */
    mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
}

typedef void outer(unsigned long steps, const char *inner, const char *decoy);

/* Looks like the caller of Other. */
static __attribute__((noinline)) void decoy(void) {
    char *volatile address = dump_path;
    printf("%s\n", address);
}

static volatile unsigned long rounds;

static void run(const char *code) {
    while (goes_on()) {
        ((outer *)code)(varied(2000000), code + INNER_OFFSET, (const char *)decoy + 8);
        rounds++;
    }
}

/* Runs each function for 0.3 s. */
static void run_replacing(char *code) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (int is_inner = 0; poll(&input, 1, 0) == 0; is_inner = !is_inner) {
        memcpy(code + INNER_OFFSET, is_inner ? INNER : OTHER, sizeof INNER);
        write_function(is_inner ? "Inner" : "Other", code + INNER_OFFSET, sizeof INNER,
                       is_inner ? INNER_EH_FRAME : OTHER_EH_FRAME, sizeof INNER_EH_FRAME);
        double until_seconds = now_seconds() + 0.3;
        while (now_seconds() < until_seconds)
            ((outer *)code)(varied(2000000), code + INNER_OFFSET, (const char *)decoy + 8);
    }
    run(code);
}

int main(int argc, char **argv) {
    const char *mode = argc < 3 ? "" : argv[2];
    int replaces = strcmp(mode, "replacing") == 0;
    char *code = mmap(NULL, MAPPING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    memcpy(code, OUTER, sizeof OUTER);
    memcpy(code + INNER_OFFSET, INNER, sizeof INNER);
    mprotect(code, MAPPING_BYTES, PROT_READ | PROT_EXEC | (replaces ? PROT_WRITE : 0));
    write_dump(code, strcmp(mode, "without") != 0);
    ready(argc, argv);
    if (replaces)
        run_replacing(code);
    else
        run(code);
    return 0;
}
