/* Text that the program has copied to anonymous memory at the same addresses, as programs do for huge pages:
 * main > outer > middle > leaf. argv[2] selects when and how:
 *   copy    before it is ready: anonymous memory is mapped over the text, and filled with a copy
 *   move    before it is ready: a copy is moved over the text (mremap(2))
 *   late    as `copy`, a second after it is ready */
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "lifetime.h"

extern const char __executable_start, etext;

enum { PAGE = 4096 };

static volatile unsigned long sink;

static void leaf(void) { sink += spin(20000); }

static void middle(void) {
    leaf();
    sink++;
}

static void outer(void) {
    middle();
    sink++;
}

/* In a section of its own, on pages that are not replaced. */
#define STAYS __attribute__((section("stays"), aligned(PAGE), noinline))

static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = number == SYS_mremap ? a : -1, r9 __asm__("r9") = 0;
    if (number == SYS_mremap)
        r8 = d, r10 = MREMAP_MAYMOVE | MREMAP_FIXED;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

STAYS static void replace(char *text, const char *copy, long bytes, int moves) {
    if (moves) {
        call(SYS_mremap, (long)copy, bytes, bytes, (long)text);
        return;
    }
    call(SYS_mmap, (long)text, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    for (long byte = 0; byte < bytes; byte++)
        ((volatile char *)text)[byte] = copy[byte];
    call(SYS_mprotect, (long)text, bytes, PROT_READ | PROT_EXEC, 0);
}

/* The pages that have text alone and are not those of `replace`. */
static void replace_text(const char *how) {
    unsigned long start = ((unsigned long)&leaf) & -PAGE, end = ((unsigned long)&etext + PAGE - 1) & -PAGE;
    unsigned long stays = (unsigned long)&replace;
    if (start <= stays && stays < end)
        end = stays;
    long bytes = (long)(end - start);
    char *copy = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        exit(1);
    memcpy(copy, (const char *)start, (size_t)bytes);
    int moves = strcmp(how, "move") == 0;
    if (moves)
        mprotect(copy, (size_t)bytes, PROT_READ | PROT_EXEC);
    replace((char *)start, copy, bytes, moves);
}

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "copy";
    int is_late = strcmp(how, "late") == 0;
    if (!is_late)
        replace_text(how);
    ready(argc, argv);
    for (time_t begin = time(NULL); goes_on();) {
        if (is_late && time(NULL) > begin + 1) {
            replace_text(how);
            is_late = 0;
        }
        outer();
    }
    return 0;
}
