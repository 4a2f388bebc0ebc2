// A PLT entry that is interrupted: main > run > calls > [PLT entry] > [signal return of the C library] > handler >
// leaf. The PLT entry reads its target from the GOT and faults while that is unreadable.
#include <ctype.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../lifetime.h"

enum { PAGE_BYTES = 4096 };

extern char _GLOBAL_OFFSET_TABLE_[];

static volatile unsigned long sink;

static void leaf(void) { sink += spin(400000); }

// A system call without the C library, whose functions would be called through the PLT.
static inline __attribute__((always_inline)) void protect_table(unsigned long protection) {
    unsigned long result = SYS_mprotect, page = (unsigned long)_GLOBAL_OFFSET_TABLE_ & -PAGE_BYTES;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(page), "S"((unsigned long)PAGE_BYTES), "d"(protection)
                     : "rcx", "r11", "memory");
}

static void handler(int number) {
    leaf();
    protect_table(PROT_READ);
    sink += number;
}

static void calls(void) {
    protect_table(PROT_NONE);
    sink += (unsigned long)(toupper)('x');
}

static void run(void) {
    while (goes_on())
        calls();
}

int main(int argc, char **argv) {
    signal(SIGSEGV, handler);
    ready(argc, argv);
    run();
    return 0;
}
